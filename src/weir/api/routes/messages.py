"""Timelines of messages."""

from __future__ import annotations

from fastapi import APIRouter

from weir.api.auth import App, Reader
from weir.api.responses import problems
from weir.api.schemas.messages import MomentView, TimelineView
from weir.api.services import present

router = APIRouter(prefix="/api/v1/messages", tags=["messages"])


@router.get("/{message_id}/timeline", operation_id="show_message_timeline", responses=problems())
async def show_timeline(message_id: str, access: Reader, services: App) -> TimelineView:
    """The timeline of a message: receipt, operation, enqueue, attempts with errors, death, redrive."""
    found = await present(services.timelines, "PostgreSQL").of(access.environment, message_id)
    return TimelineView(
        message_id=found.message_id,
        queue=found.queue,
        state=found.state,
        items=[
            MomentView(at_ms=moment.at_ms, what=moment.what, details=moment.details)
            for moment in found.moments
        ],
    )
