"""Why a message waits, or waited until it was handed out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from fastapi import APIRouter

from weir.api.auth import App, Reader
from weir.api.message_lookup import FoundMessage, look_up
from weir.api.responses import problems
from weir.api.schemas.messages import ShownState, WaitPartView, WhyView
from weir.api.services import Services, present
from weir.model.ids import MessageId, check_id
from weir.model.inspection import WaitParts, Why
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.wording import duration

router = APIRouter(tags=["messages"])

_IN_WORDS = {
    "operation_queue": "in the operation queue",
    "scheduled": "before its time",
    "backoff": "before its next attempt",
    "blocked": "behind the head of its key",
    "paused": "paused",
    "queue_limit": "at the limit of its queue",
    "environment_limit": "at the limit of its environment",
    "unasked": "nobody asked",
    "turn": "in turn behind others",
    "unknown": "unknown",
}
"""The reasons of a wait, in the order in which they hold, as a person says them."""


@router.get("/api/v1/messages/{message_id}/why", operation_id="explain_message", responses=problems(409))
async def explain_message(message_id: str, access: Reader, services: App) -> WhyView:
    """Why a message waits, or waited until it was handed out: the parts of its wait."""
    wanted = MessageId(check_id(message_id, what="message"))
    queue = await services.broker.find_message(access.environment, wanted)
    why = None if queue is None else await services.broker.why(queue, wanted)
    if queue is not None and why is not None:
        return _why_view(wanted, queue, why)
    found = await look_up(services, access.environment, wanted)
    if found.operation_id is not None:
        return await _why_queued(services, access.environment, found, found.operation_id)
    raise found.absence()


def _why_view(message_id: MessageId, queue: QueueRef, why: Why) -> WhyView:
    return WhyView(
        message_id=message_id,
        queue=queue.queue,
        state=ShownState(why.state.value),
        enqueued_at_ms=why.enqueued_at_ms,
        until_ms=why.until_ms,
        waited_ms=why.parts.total_ms,
        leased_ms=why.leased_ms,
        parts=list(_parts(why.parts)),
        behind_id=why.behind_id,
    )


def _parts(parts: WaitParts) -> Iterator[WaitPartView]:
    for field in fields(parts):
        waited_ms = getattr(parts, field.name)
        if waited_ms:
            yield _part(field.name.removesuffix("_ms"), waited_ms)


def _part(reason: Any, waited_ms: int) -> WaitPartView:
    return WaitPartView(reason=reason, waited_ms=waited_ms, text=f"{_IN_WORDS[reason]} {duration(waited_ms)}")


async def _why_queued(
    services: Services, environment: EnvironmentRef, found: FoundMessage, operation_id: str
) -> WhyView:
    """A message that is still in an operation has waited for nothing else."""
    store = present(services.operations, "the operation queue").store
    row = await store.read(environment, operation_id)
    return WhyView(
        message_id=found.message_id,
        queue=row["queue"],
        state=ShownState.QUEUED,
        enqueued_at_ms=row["created_ms"],
        until_ms=row["created_ms"] + row["latency_ms"],
        waited_ms=row["latency_ms"],
        leased_ms=0,
        parts=[_part("operation_queue", row["latency_ms"])],
        behind_id=None,
    )
