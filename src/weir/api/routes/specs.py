"""Specs: show the applied one, plan another, apply it."""

from __future__ import annotations

import json

from fastapi import APIRouter
from starlette.responses import Response

from weir.api.auditing import audit
from weir.api.auth import Admin, App, Reader
from weir.api.schemas.specs import (
    AppliedView,
    PlanView,
    RevisionView,
    SpecBody,
    SpecHistory,
    SpecToApply,
    SpecView,
    plan_json,
)
from weir.api.services import announce, present
from weir.control.spec_plans import SpecText
from weir.control.spec_register import AppliedSpec
from weir.control.system_events import SystemEventKind
from weir.errors import NotFound

router = APIRouter(prefix="/api/v1/spec", tags=["specs"])


@router.get("", operation_id="show_spec", response_model=SpecView)
async def show_spec(access: Reader, services: App) -> Response:
    """The spec that holds in the environment."""
    found = await present(services.specs, "PostgreSQL").current(access.environment)
    if found is None:
        raise NotFound("no spec is applied to this environment yet")
    return _view(found)


@router.get("/history", operation_id="list_spec_revisions", response_model=SpecHistory)
async def list_revisions(access: Reader, services: App) -> SpecHistory:
    """The last 50 revisions, newest first, without their texts."""
    found = await present(services.specs, "PostgreSQL").history(access.environment)
    return SpecHistory(items=[RevisionView.model_validate(one, from_attributes=True) for one in found])


@router.get("/history/{revision}", operation_id="show_spec_revision", response_model=SpecView)
async def show_revision(revision: int, access: Reader, services: App) -> Response:
    """One of the last 50 revisions."""
    found = await present(services.specs, "PostgreSQL").revision(access.environment, revision)
    if found is None:
        raise NotFound(f"there is no revision {revision} of the spec of this environment, or not any more")
    return _view(found)


@router.post("/plan", operation_id="plan_spec", response_model=PlanView)
async def plan_spec(body: SpecBody, access: Reader, services: App) -> Response:
    """Show what applying this spec would change, without changing anything."""
    text = SpecText(source=body.source, file=body.file)
    specs = present(services.specs, "PostgreSQL")
    return as_json(await specs.plan(access.environment, text, show=plan_json))


@router.put("", operation_id="apply_spec", response_model=AppliedView)
async def apply_spec(body: SpecToApply, access: Admin, services: App) -> Response:
    """Make this spec hold, all of it or none; every process follows within a second."""
    scope = access.environment

    async def record(name: str, revision: int) -> None:
        await audit(services, access, "spec.apply", name, revision=revision)

    applied = await present(services.specs, "PostgreSQL").apply(
        scope,
        SpecText(source=body.source, file=body.file),
        actor=access.actor,
        expected=body.revision,
        show=plan_json,
        record=record,
    )
    await announce(services, SystemEventKind.SPEC_APPLIED, scope, revision=applied.revision)
    head = json.dumps({"revision": applied.revision, "hooks": applied.addresses(scope), "told": applied.told})
    return as_json(head[:-1].encode() + b', "plan": ' + applied.plan + b"}")


def as_json(content: bytes) -> Response:
    """An answer that is written already."""
    return Response(content, media_type="application/json")


def _view(found: AppliedSpec) -> Response:
    """A revision. Its spec is JSON already, and may be large."""
    head = RevisionView.model_validate(found, from_attributes=True).model_dump() | {"source": found.source}
    return as_json(json.dumps(head)[:-1].encode() + b', "spec": ' + found.spec.encode() + b"}")
