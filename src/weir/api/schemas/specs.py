"""Specs: text, plan and history."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from weir.spec.parse import MAX_BYTES


class SpecBody(BaseModel):
    """A spec as text; the ending of the file name says in which form it is written."""

    source: Annotated[str, Field(max_length=MAX_BYTES, examples=["app Shop { queue Orders {} }"])]
    file: Annotated[str, Field(max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")] = "spec.weir"


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


class SpecView(BaseModel):
    """A revision of the environment's spec."""

    revision: int
    file: str
    actor: str
    applied_at_ms: int
    source: str
    spec: dict[str, Any]


class SpecHistory(BaseModel):
    items: list[SpecView]


class AppliedView(BaseModel):
    """The applied revision, its plan, and the address of each webhook."""

    revision: int
    plan: PlanView
    hooks: dict[str, str]
