"""Direct mode: what a client has to know before it speaks to Redis itself."""

from __future__ import annotations

from fastapi import APIRouter

from weir.api.auth import App, Writer
from weir.api.schemas.direct import DirectView
from weir.api.services import present
from weir.broker.direct_users import user_name
from weir.model.limits import MAX_PAYLOAD_BYTES

router = APIRouter(prefix="/api/v1/direct", tags=["direct mode"])


@router.get("", operation_id="show_direct")
async def show_direct(access: Writer, services: App) -> DirectView:
    """The environment of this token and how it is kept in Redis; a client in direct mode asks once."""
    users = present(services.direct_users, "Redis")
    environment, principal, limits = access.environment, access.principal, services.limits
    return DirectView(
        organization=environment.organization,
        project=environment.project,
        environment=environment.environment,
        token_id=principal.token_id,
        shards=users.shards,
        epoch=await users.epoch(),
        redis_user=user_name(principal.token_id) if principal.direct else None,
        max_payload_bytes=min(MAX_PAYLOAD_BYTES, limits.max_body_bytes),
        max_depth=limits.max_depth,
    )
