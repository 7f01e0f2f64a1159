"""Specs: what is applied to the environment, what applying another would change, and applying it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from weir.api.auth import Access, Admin, App, Reader
from weir.api.responses import problems
from weir.api.services import Services, all_or_nothing, announce, present
from weir.control.audit import Change
from weir.control.specs import AppliedSpec
from weir.control.system_events import SystemEventKind
from weir.errors import NotFound
from weir.spec.dump import dumped
from weir.spec.language import read_spec
from weir.spec.parse import MAX_BYTES
from weir.spec.plan import Plan

router = APIRouter(prefix="/api/v1/spec", tags=["specs"])


class SpecBody(BaseModel):
    """A spec as text; the ending of the file name says in which form."""

    source: Annotated[str, Field(max_length=MAX_BYTES, examples=["app Shop { queue Orders {} }"])]
    file: Annotated[str, Field(max_length=255)] = "spec.weir"


class ChangeView(BaseModel):
    effect: str
    kind: str
    name: str
    path: list[str]
    before: Any = None
    after: Any = None


class PlanView(BaseModel):
    """What would change, why it may not, and what to know about it."""

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
    """What applying did; each webhook with its address."""

    revision: int
    plan: PlanView
    hooks: dict[str, str]


@router.get("", operation_id="show_spec", responses=problems())
async def show_spec(access: Reader, services: App) -> SpecView:
    """The spec that holds in the environment."""
    found = await present(services.specs, "PostgreSQL").current(access.environment)
    if found is None:
        raise NotFound("no spec is applied to this environment yet")
    return _view(found)


@router.get("/history", operation_id="list_spec_revisions", responses=problems())
async def list_revisions(access: Reader, services: App) -> SpecHistory:
    """The last revisions, newest first."""
    found = await present(services.specs, "PostgreSQL").history(access.environment)
    return SpecHistory(items=[_view(one) for one in found])


@router.post("/plan", operation_id="plan_spec", responses=problems())
async def plan_spec(body: SpecBody, access: Reader, services: App) -> PlanView:
    """What applying this spec would change; nothing is changed."""
    app = await asyncio.to_thread(read_spec, body.source, file=body.file)
    return _plan(await present(services.specs, "PostgreSQL").plan(access.environment, app))


@router.put("", operation_id="apply_spec", responses=problems(409))
async def apply_spec(body: SpecBody, access: Admin, services: App) -> AppliedView:
    """Make this spec hold, all of it or none; every process follows within a second."""
    app = await asyncio.to_thread(read_spec, body.source, file=body.file)
    scope = access.environment
    async with all_or_nothing(services):
        applied = await present(services.specs, "PostgreSQL").apply(
            scope, app, source=body.source, file=body.file, actor=access.actor
        )
        await _audit(services, access, app.name, applied.revision)
    await announce(services, SystemEventKind.SPEC_APPLIED, scope, revision=applied.revision)
    return AppliedView(revision=applied.revision, plan=_plan(applied.plan), hooks=applied.addresses(scope))


async def _audit(services: Services, access: Access, name: str, revision: int) -> None:
    if services.audit is not None:
        change = Change.inside(
            access.environment, actor=access.actor, action="spec.apply", target=name, revision=revision
        )
        await services.audit.record(change)


def _view(found: AppliedSpec) -> SpecView:
    return SpecView(
        revision=found.revision,
        file=found.file,
        actor=found.actor,
        applied_at_ms=found.applied_at_ms,
        source=found.source,
        spec=dumped(found.app),
    )


def _plan(found: Plan) -> PlanView:
    return PlanView(
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
    )
