"""Why a message waits, or waited until it was handed out or ended."""

from __future__ import annotations

from fastapi import APIRouter

from weir.api.auth import App, Reader
from weir.api.message_lives import ended_in_attempt, part_view, part_views
from weir.api.message_lookup import FoundMessage, look_up
from weir.api.schemas.messages import WhyView
from weir.api.services import Services, present
from weir.model.ids import MessageId, check_id
from weir.model.inspection import Why
from weir.model.lives import Life
from weir.model.names import EnvironmentRef, QueueRef

router = APIRouter(tags=["messages"])


@router.get("/api/v1/messages/{message_id}/why", operation_id="explain_message")
async def explain_message(message_id: str, access: Reader, services: App) -> WhyView:
    """Why a message waits, or waited until it was handed out or ended: the parts of its wait."""
    wanted = MessageId(check_id(message_id, what="message"))
    queue = await services.broker.find_message(access.environment, wanted)
    why = None if queue is None else await services.broker.why(queue, wanted)
    if queue is not None and why is not None:
        return _why_view(wanted, queue, why)
    found = await look_up(services, access.environment, wanted)
    if found.operation_id is not None:
        return await _why_queued(services, access.environment, found, found.operation_id)
    if found.life is not None:
        return _why_ended(found.life, found.state)
    raise found.absence()


def _why_view(message_id: MessageId, queue: QueueRef, why: Why) -> WhyView:
    return WhyView(
        message_id=message_id,
        queue=queue.queue,
        state=why.state.value,
        enqueued_at_ms=why.enqueued_at_ms,
        until_ms=why.until_ms,
        waited_ms=why.parts.total_ms,
        leased_ms=why.leased_ms,
        parts=list(part_views(why.parts)),
        behind_id=why.behind_id,
    )


def _why_ended(life: Life, state: str) -> WhyView:
    """The wait of an ended message: until its last attempt began, or to its end if it was not leased then."""
    waited_last = not ended_in_attempt(life) or life.handed_out_at_ms is None
    until_ms = life.ended_at_ms if waited_last else life.handed_out_at_ms or 0
    return WhyView(
        message_id=life.message_id,
        queue=life.queue.queue,
        state=state,
        enqueued_at_ms=life.enqueued_at_ms,
        until_ms=until_ms,
        waited_ms=life.parts.total_ms,
        leased_ms=life.leased_ms - (0 if waited_last else life.ended_at_ms - until_ms),
        parts=list(part_views(life.parts)),
        behind_id=None,
    )


async def _why_queued(
    services: Services, environment: EnvironmentRef, found: FoundMessage, operation_id: str
) -> WhyView:
    """A message that is still in an operation has waited for nothing else."""
    store = present(services.operations, "the operation queue").store
    row = await store.read(environment, operation_id)
    return WhyView(
        message_id=found.message_id,
        queue=row["queue"],
        state=found.state,
        enqueued_at_ms=row["created_ms"],
        until_ms=row["created_ms"] + row["latency_ms"],
        waited_ms=row["latency_ms"],
        leased_ms=0,
        parts=[part_view("operation_queue", row["latency_ms"])],
        behind_id=None,
    )
