"""Specs: show the applied one, plan another, apply it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from weir.api.auditing import audit
from weir.api.auth import Admin, App, Reader
from weir.api.schemas.specs import AppliedView, ChangeView, PlanView, SpecBody, SpecHistory, SpecView
from weir.api.services import all_or_nothing, announce, present
from weir.control.spec_register import AppliedSpec
from weir.control.system_events import SystemEventKind
from weir.errors import NotFound
from weir.spec.dump import dumped
from weir.spec.plan import Plan

router = APIRouter(prefix="/api/v1/spec", tags=["specs"])


@router.get("", operation_id="show_spec", response_model=SpecView)
async def show_spec(access: Reader, services: App) -> Response:
    """The spec that holds in the environment."""
    found = await present(services.specs, "PostgreSQL").current(access.environment)
    if found is None:
        raise NotFound("no spec is applied to this environment yet")
    return await write_view(lambda: _view(found))


@router.get("/history", operation_id="list_spec_revisions", response_model=SpecHistory)
async def list_revisions(access: Reader, services: App) -> Response:
    """The last revisions, newest first."""
    found = await present(services.specs, "PostgreSQL").history(access.environment)
    return await write_view(lambda: SpecHistory(items=[_view(one) for one in found]))


@router.post("/plan", operation_id="plan_spec", response_model=PlanView)
async def plan_spec(body: SpecBody, access: Reader, services: App) -> Response:
    """Show what applying this spec would change, without changing anything."""
    specs = present(services.specs, "PostgreSQL")
    app = await specs.read(body.source, file=body.file)
    found = await specs.plan(access.environment, app)
    return await write_view(lambda: plan_view(found))


@router.put("", operation_id="apply_spec", response_model=AppliedView)
async def apply_spec(body: SpecBody, access: Admin, services: App) -> Response:
    """Make this spec hold, all of it or none; every process follows within a second."""
    specs = present(services.specs, "PostgreSQL")
    app = await specs.read(body.source, file=body.file)
    scope = access.environment
    async with all_or_nothing(services):
        applied = await specs.apply(scope, app, source=body.source, file=body.file, actor=access.actor)
        await audit(services, access, "spec.apply", app.name, revision=applied.revision)
    await announce(services, SystemEventKind.SPEC_APPLIED, scope, revision=applied.revision)
    hooks = applied.addresses(scope)
    return await write_view(
        lambda: AppliedView(revision=applied.revision, plan=plan_view(applied.plan), hooks=hooks)
    )


async def write_view(view: Callable[[], BaseModel]) -> Response:
    """Write the answer in a thread, because a plan may have thousands of lines."""
    content = await asyncio.to_thread(lambda: view().model_dump_json())
    return Response(content, media_type="application/json")


def _view(found: AppliedSpec) -> SpecView:
    return SpecView(
        revision=found.revision,
        file=found.file,
        actor=found.actor,
        applied_at_ms=found.applied_at_ms,
        source=found.source,
        spec=dumped(found.app),
    )


def plan_view(found: Plan) -> PlanView:
    """A plan as an answer."""
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
