"""Messages that wait: run them now, reschedule them, change their priority, cancel them; all audited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from fastapi import APIRouter

from weir.api.auditing import audit
from weir.api.auth import Access, App, Writer
from weir.api.message_lookup import find_queue, look_up
from weir.api.schemas.message_touches import (
    CancelledView,
    CancelMessagesBody,
    CancelResultView,
    PriorityBody,
    RescheduleBody,
    TouchedView,
)
from weir.api.services import Services, all_or_nothing
from weir.errors import Conflict, NotFound
from weir.model.ids import MessageId, check_id
from weir.model.inspection import MessagePage, Touched
from weir.model.names import QueueRef

router = APIRouter(tags=["messages"])

Touch = Callable[[QueueRef, Sequence[MessageId]], Awaitable[list[Touched]]]

_REFUSALS = {
    Touched.LEASED: "is leased, so it stays; wait until its attempt ends, or cancel it",
    Touched.BLOCKED: "waits behind the head of its key, and moving it would break the order; move the head",
    Touched.ORDERED: "is in an ordered queue, which serves by order and not by priority",
}
_AUDITED_IDS = 100
"""A record of the audit log names at most this many messages."""


@router.post("/api/v1/messages/{message_id}/run", operation_id="run_message")
async def run_message(message_id: str, access: Writer, services: App) -> TouchedView:
    """Let a scheduled or retrying message be available now."""
    return await _touch_one(services, access, "message.run", message_id, services.broker.run_now)


@router.post("/api/v1/messages/{message_id}/reschedule", operation_id="reschedule_message")
async def reschedule_message(
    message_id: str, body: RescheduleBody, access: Writer, services: App
) -> TouchedView:
    """Let a waiting message be available at another time, or after a delay."""

    async def reschedule(queue: QueueRef, ids: Sequence[MessageId]) -> list[Touched]:
        return await services.broker.reschedule(queue, ids, at_ms=body.at_ms, delay_ms=body.delay_ms)

    details = body.model_dump(exclude_none=True)
    return await _touch_one(services, access, "message.reschedule", message_id, reschedule, **details)


@router.post("/api/v1/messages/{message_id}/priority", operation_id="change_message_priority")
async def change_message_priority(
    message_id: str, body: PriorityBody, access: Writer, services: App
) -> TouchedView:
    """Let a waiting message be served earlier or later than others."""

    async def change(queue: QueueRef, ids: Sequence[MessageId]) -> list[Touched]:
        return await services.broker.change_priority(queue, ids, body.priority)

    return await _touch_one(services, access, "message.priority", message_id, change, priority=body.priority)


@router.post("/api/v1/messages/{message_id}/cancel", operation_id="cancel_message")
async def cancel_message(message_id: str, access: Writer, services: App) -> TouchedView:
    """Remove a message for good. If it is leased, its lease is revoked and its holder is told."""
    try:
        return await _touch_one(services, access, "message.cancel", message_id, services.broker.cancel)
    except (NotFound, Conflict):
        # The answer to the first request may have been lost.
        wanted = MessageId(check_id(message_id, what="message"))
        kept = await services.broker.kept(access.environment, wanted)
        if kept is None or kept.queue is None:
            raise
        return TouchedView(message_id=wanted, queue=kept.queue, result=Touched.DONE.value)


@router.post("/api/v1/queues/{queue}/messages/cancel", operation_id="cancel_messages")
async def cancel_messages(
    queue: str, body: CancelMessagesBody, access: Writer, services: App
) -> CancelledView:
    """Cancel messages of a queue: up to 1,000 by id, or all that match a filter, one page per request."""
    body.check()
    ref = access.environment.queue(queue)
    page = await _matching(services, ref, body)
    ids = body.message_ids() if page is None else [message.message_id for message in page.messages]
    if body.dry_run:
        held = await services.broker.holds(ref, ids) if page is None else [True] * len(ids)
        results = ["held" if one else Touched.GONE.value for one in held]
    else:
        results = [one.value for one in await _cancel(services, access, ref, ids, body)]
    return CancelledView(
        dry_run=body.dry_run,
        items=[
            CancelResultView(message_id=one, result=result) for one, result in zip(ids, results, strict=True)
        ],
        cancelled=sum(result != Touched.GONE for result in results),
        scanned=len(ids) if page is None else page.scanned,
        next_cursor=None if page is None else page.cursor,
    )


async def _matching(services: Services, queue: QueueRef, body: CancelMessagesBody) -> MessagePage | None:
    """The messages that a filter chooses now; None without a filter."""
    if body.filter is None:
        return None
    return await services.broker.list_messages(
        queue, body.filter.state, match=body.filter.filter(), cursor=body.cursor, limit=body.limit
    )


async def _cancel(
    services: Services, access: Access, queue: QueueRef, ids: list[MessageId], body: CancelMessagesBody
) -> list[Touched]:
    if not ids:
        return []
    details = {"count": len(ids), "message_ids": ids[:_AUDITED_IDS], **body.described()}
    async with all_or_nothing(services):
        await audit(services, access, "message.cancel", queue.queue, **details)
        return await services.broker.cancel(queue, ids)


async def _touch_one(
    services: Services, access: Access, action: str, message_id: str, touch: Touch, **details: object
) -> TouchedView:
    """Touch one message and record it; a refusal undoes the record."""
    queue, wanted = await find_queue(services, access.environment, message_id)
    async with all_or_nothing(services):
        await audit(services, access, action, wanted, queue=queue.queue, **details)
        (result,) = await touch(queue, [wanted])
        if result in _REFUSALS:
            raise Conflict(f"message `{wanted}` {_REFUSALS[result]}")
        if result is Touched.GONE:
            raise (await look_up(services, access.environment, wanted)).absence()
    return TouchedView(message_id=wanted, queue=queue.queue, result=result.value)
