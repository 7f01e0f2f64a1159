"""Groups of tasks: which members are done."""

from __future__ import annotations

from fastapi import APIRouter

from weir.api.auth import App, Writer
from weir.api.schemas.groups import MemberBody, MemberDone

router = APIRouter(prefix="/api/v1/groups", tags=["groups"])


@router.post("/{group}/members", operation_id="finish_group_member")
async def finish_member(group: str, body: MemberBody, access: Writer, services: App) -> MemberDone:
    """Note that a member of a group is done, and tell whether all are. May be repeated."""
    complete = await services.broker.finish_member(access.environment, group, member=body.member, of=body.of)
    return MemberDone(complete=complete)
