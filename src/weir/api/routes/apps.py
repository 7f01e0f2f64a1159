"""Apps: list their declarations, plan a declaration, declare."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from weir.api.auditing import audit
from weir.api.auth import Admin, App, Reader
from weir.api.routes.specs import plan_view, write_view
from weir.api.schemas.apps import AppList, AppView
from weir.api.schemas.specs import PlanView, SpecBody
from weir.api.services import Services, all_or_nothing, announce, present
from weir.control.system_events import SystemEventKind
from weir.errors import InvalidInput
from weir.spec.dump import dumped
from weir.spec.ir import AppSpec

router = APIRouter(prefix="/api/v1/apps", tags=["apps"])


@router.get("", operation_id="list_apps")
async def list_apps(access: Reader, services: App) -> AppList:
    """The apps of the environment, each with the queues and schedules that it owns."""
    found = await present(services.apps, "PostgreSQL").of(access.environment)
    return AppList(
        items=[
            AppView(
                name=one.app.name, actor=one.actor, declared_at_ms=one.declared_at_ms, spec=dumped(one.app)
            )
            for one in found
        ]
    )


@router.post("/{app}/plan", operation_id="plan_app", response_model=PlanView)
async def plan_app(app: str, body: SpecBody, access: Reader, services: App) -> Response:
    """Show what declaring this app would change, without changing anything."""
    register = present(services.apps, "PostgreSQL")
    found = await register.plan(access.environment, await _read(services, app, body))
    return await write_view(lambda: plan_view(found))


@router.put("/{app}", operation_id="declare_app", response_model=PlanView)
async def declare_app(app: str, body: SpecBody, access: Admin, services: App) -> Response:
    """Make the queues and schedules of this app hold, all of them or none."""
    register = present(services.apps, "PostgreSQL")
    spec = await _read(services, app, body)
    scope = access.environment
    async with all_or_nothing(services):
        found = await register.declare(scope, spec, actor=access.actor)
        if found.changes:
            await audit(services, access, "app.declare", spec.name)
    if found.changes:
        await announce(services, SystemEventKind.SPEC_APPLIED, scope, app=spec.name)
    return await write_view(lambda: plan_view(found))


async def _read(services: Services, app: str, body: SpecBody) -> AppSpec:
    found = await present(services.specs, "PostgreSQL").read(body.source, file=body.file)
    if found.name != app:
        raise InvalidInput(f"the spec is of the app `{found.name}`, and the path names `{app:.100}`")
    return found
