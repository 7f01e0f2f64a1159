"""Outcomes as a stream of events: the progress of a message, and how it ends."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from weir.api.auth import Reader, until_token_ends
from weir.api.live_outcomes import LiveOutcomes
from weir.model.ids import MessageId, check_id

router = APIRouter(tags=["messages"])
STREAM_PATH = "/api/v1/messages/{message_id}/outcome/stream"


@router.get(
    STREAM_PATH,
    operation_id="watch_outcome",
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "The stream."},
    },
)
async def watch_outcome(message_id: str, access: Reader, request: Request) -> Response:
    """Server-sent events: a `change` now and whenever the state or the progress changed, then the `end`.

    Each carries the document of `show_outcome`. If a stream ends without `end`, open it again.
    """
    live: LiveOutcomes = request.app.state.live_outcomes
    wanted = MessageId(check_id(message_id, what="message"))
    return StreamingResponse(
        until_token_ends(request, await live.open(access.environment, wanted)),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
