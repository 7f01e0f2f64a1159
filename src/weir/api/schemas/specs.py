"""Specs: text, plan and history."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from weir.spec.parse import MAX_BYTES
from weir.spec.plan import Plan


class SpecBody(BaseModel):
    """A spec as text; the ending of the file name says in which form it is written."""

    source: Annotated[str, Field(max_length=MAX_BYTES, examples=["app Shop { queue Orders {} }"])]
    file: Annotated[str, Field(max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")] = "spec.weir"


class SpecToApply(SpecBody):
    revision: int | None = Field(
        None, ge=0, description="The revision of the plan; 409 if the environment changed since then."
    )


class ChangeView(BaseModel):
    effect: str
    kind: str
    name: str
    path: list[str]
    before: Any = None
    after: Any = None


class PlanView(BaseModel):
    """The changes of a plan, the reasons to refuse it, and warnings."""

    allowed: bool
    changes: list[ChangeView]
    refusals: list[str]
    warnings: list[str]
    revision: int = Field(
        0, description="The revision of the environment. Apply with it, and only what the plan shows is done."
    )


class RevisionView(BaseModel):
    """A revision of the environment's spec, without its text."""

    revision: int
    file: str
    actor: str
    applied_at_ms: int


class SpecView(RevisionView):
    """A revision of the environment's spec."""

    source: str
    spec: dict[str, Any]


class SpecHistory(BaseModel):
    items: list[RevisionView]


class AppliedView(BaseModel):
    """The applied revision, its plan, and the address of each webhook."""

    revision: int
    plan: PlanView
    hooks: dict[str, str]
    told: bool = Field(description="Whether Redis knows the queues already; it follows in any case.")


def plan_json(found: Plan) -> bytes:
    """A plan as an answer."""
    view = PlanView(
        allowed=found.allowed,
        changes=[
            ChangeView(
                effect=change.effect.value,
                kind=change.kind,
                name=change.name,
                path=list(change.path),
                before=change.before,
                after=change.after,
            )
            for change in found.changes
        ],
        refusals=list(found.refusals),
        warnings=list(found.warnings),
        revision=found.revision,
    )
    return view.model_dump_json().encode()
