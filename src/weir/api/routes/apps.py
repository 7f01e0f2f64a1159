"""Apps: list their declarations, plan a declaration, declare."""

from __future__ import annotations

import json

from fastapi import APIRouter
from starlette.responses import Response

from weir.api.auditing import audit
from weir.api.auth import Admin, App, Reader
from weir.api.routes.specs import as_json
from weir.api.schemas.apps import AppList
from weir.api.schemas.specs import PlanView, SpecBody, plan_json
from weir.api.services import announce, present
from weir.control.spec_plans import SpecText
from weir.control.system_events import SystemEventKind

router = APIRouter(prefix="/api/v1/apps", tags=["apps"])


@router.get("", operation_id="list_apps", response_model=AppList)
async def list_apps(access: Reader, services: App) -> Response:
    """The apps of the environment, each with the queues and schedules that it owns."""
    found = await present(services.apps, "PostgreSQL").of(access.environment)
    items = [
        json.dumps({"name": one.name, "actor": one.actor, "declared_at_ms": one.declared_at_ms})[:-1]
        + f', "spec": {one.spec}}}'
        for one in found
    ]
    return as_json(f'{{"items": [{", ".join(items)}]}}'.encode())


@router.post("/{app}/plan", operation_id="plan_app", response_model=PlanView)
async def plan_app(app: str, body: SpecBody, access: Reader, services: App) -> Response:
    """Show what declaring this app would change, without changing anything."""
    text = SpecText(source=body.source, file=body.file)
    register = present(services.apps, "PostgreSQL")
    return as_json(await register.plan(access.environment, app, text, show=plan_json))


@router.put("/{app}", operation_id="declare_app", response_model=PlanView)
async def declare_app(app: str, body: SpecBody, access: Admin, services: App) -> Response:
    """Make the queues and schedules of this app hold, all of them or none."""
    scope = access.environment

    async def record(name: str, _: int) -> None:
        await audit(services, access, "app.declare", name)

    declared = await present(services.apps, "PostgreSQL").declare(
        scope,
        app,
        SpecText(source=body.source, file=body.file),
        actor=access.actor,
        show=plan_json,
        record=record,
    )
    if declared.changes:
        await announce(services, SystemEventKind.SPEC_APPLIED, scope, app=app)
    return as_json(declared.plan)
