"""Endpoints that answered 410 and receive nothing: list them, enable them again."""

from __future__ import annotations

from fastapi import APIRouter

from weir.api.auth import App, Reader, Writer
from weir.api.schemas.endpoints import DisabledEndpoint, DisabledEndpoints, EndpointBody
from weir.api.services import present
from weir.errors import NotFound

router = APIRouter(prefix="/api/v1/disabled-endpoints", tags=["deliveries"])


@router.get("", operation_id="list_disabled_endpoints")
async def list_disabled(access: Reader, services: App) -> DisabledEndpoints:
    """Every disabled endpoint of the environment."""
    rows = await present(services.timelines, "PostgreSQL").log.list_disabled(access.environment)
    return DisabledEndpoints(items=[DisabledEndpoint.model_validate(_shown(row)) for row in rows])


@router.post("/enable", operation_id="enable_endpoint")
async def enable(body: EndpointBody, access: Writer, services: App) -> DisabledEndpoints:
    """Let an endpoint receive again; workers notice within a second. Answers with the others."""
    log = present(services.timelines, "PostgreSQL").log
    if not await log.enable(access.environment, body.url):
        raise NotFound(f"the endpoint `{body.url:.200}` is not disabled here")
    return await list_disabled(access, services)


def _shown(row: dict[str, object]) -> dict[str, object]:
    return {name: row[name] for name in DisabledEndpoint.model_fields}
