"""Environments: a token sees the ones in its scope; an admin creates one by naming it."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from weir.api.auditing import audit
from weir.api.auth import Admin, App, Caller
from weir.api.revisions import IfMatch, check_revision
from weir.api.schemas.tenants import AuditList, EnvironmentBody, EnvironmentList, EnvironmentView
from weir.api.services import present
from weir.control.changes import THE_LIMIT, mark_untold
from weir.control.principals import Role
from weir.control.tenants import Environment
from weir.errors import Unavailable
from weir.model.limits import MAX_NAME_BYTES

router = APIRouter(prefix="/api/v1", tags=["tenants"])
ScopeName = Annotated[str | None, Query(max_length=MAX_NAME_BYTES, description="Only changes inside of it.")]


@router.get("/environments", operation_id="list_environments")
async def list_environments(caller: Caller, services: App) -> EnvironmentList:
    """The environments in the scope of the token."""
    found = await present(services.tenants, "PostgreSQL").visible_to(caller)
    return EnvironmentList(items=[_view(one) for one in found])


@router.put("/environments/{environment}", operation_id="define_environment")
async def define_environment(
    environment: str, body: EnvironmentBody, access: Admin, services: App, if_match: IfMatch = None
) -> EnvironmentView:
    """Create an environment, or set how many of its messages may be leased at once."""
    tenants = present(services.tenants, "PostgreSQL")
    changes = present(services.changes, "PostgreSQL")
    limited = "concurrency" in body.model_fields_set

    async def read() -> EnvironmentView:
        found = await tenants.visible_to(access.principal)
        return next(_view(one) for one in found if one.ref == access.environment)

    async with changes.change(access.environment) as change:
        if if_match is not None:
            check_revision(if_match, await read(), what=f"environment `{environment}`")
        if limited:
            await tenants.limit(access.environment, body.concurrency)
            await mark_untold(change.connection, access.environment, [THE_LIMIT])
        await audit(
            services, access, "environment.define", environment, **body.model_dump(exclude_unset=True)
        )
    if limited and not await changes.tell(access.environment, THE_LIMIT):
        raise Unavailable(
            f"`{environment}` is stored, and Redis does not answer; it is told as soon as it does",
            retry_after_s=1,
        )
    return await read()


@router.get("/audit-log", operation_id="list_audit_log")
async def list_audit_log(
    caller: Caller,
    services: App,
    organization: ScopeName = None,
    project: ScopeName = None,
    environment: ScopeName = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: UUID | None = None,
) -> AuditList:
    """Who changed what inside the scope of the token, or a part of it, newest first."""
    caller.demand(Role.ADMIN)
    audit = present(services.audit, "PostgreSQL")
    reach = caller.narrowed(organization=organization, project=project, environment=environment)
    entries = await audit.newest(reach, limit=limit, before=None if before is None else str(before))
    return AuditList.model_validate({"items": entries})


def _view(environment: Environment) -> EnvironmentView:
    return EnvironmentView(
        organization=environment.ref.organization,
        project=environment.ref.project,
        environment=environment.ref.environment,
        concurrency=environment.concurrency,
        created_at_ms=environment.created_at_ms,
    )
