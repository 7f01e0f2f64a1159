"""Finds how a message ended, or where it is: in its queue, in its kept result, then by `look_up`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson

from weir.api.message_lookup import LANDING, QUEUED, FoundMessage, look_up
from weir.api.services import Services
from weir.errors import NotFound
from weir.model.ids import MessageId
from weir.model.inspection import MessageState
from weir.model.message import Kept, KeptKind
from weir.model.names import EnvironmentRef

# A waiter asks Redis often at first, for short tasks, and then less often, because waiters may be many.
FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.25
_GROWTH = 1.5
ENDED = frozenset({"done", "dead", "cancelled", "gone"})
_FROM_TIMELINE = {
    "done": "done",
    "dead": "dead",
    "redriven": "dead",
    "cancelled": "cancelled",
    QUEUED: "queued",
}
NOWHERE = frozenset({"unknown", LANDING})
"""States of a message that the broker does not have, and whose end no store has recorded yet."""


def next_pause_s(pause_s: float) -> float:
    """The pause after this one."""
    return min(pause_s * _GROWTH, _LONGEST_PAUSE_S)


async def look_at_outcome(
    services: Services, environment: EnvironmentRef, message_id: MessageId
) -> dict[str, Any]:
    """The outcome of a message, or its state; its result and progress are JSON already."""
    broker = services.broker
    # Read the message before its result: an ack removes the message and stores the result in one step.
    queue = await broker.find_message(environment, message_id)
    kept = await broker.kept(environment, message_id)
    if queue is None:
        return await _ended(services, environment, message_id, kept)
    detail = await broker.show_message(queue, message_id)
    running = detail is not None and detail.state is MessageState.LEASED
    return _document(message_id, "running" if running else "waiting", kept=kept)


async def _ended(
    services: Services, environment: EnvironmentRef, message_id: MessageId, kept: Kept | None
) -> dict[str, Any]:
    if kept is not None and kept.kind is not KeptKind.PROGRESS:
        return _document(message_id, "done" if kept.kind is KeptKind.RESULT else "cancelled", kept=kept)
    found = await _look_up_twice(services, environment, message_id)
    if found is None:
        return _document(message_id, "gone", kept=kept)
    status = _FROM_TIMELINE.get(found.state, "gone" if found.detail is None else "waiting")
    if status == "dead" and not found.timeline.has_letter and found.life is None:
        # It died just now. A waiter hears of it when the error is known, too.
        status = "running"
    return _document(message_id, status, kept=kept, error=found.timeline.death_error)


async def _look_up_twice(
    services: Services, environment: EnvironmentRef, message_id: MessageId
) -> FoundMessage | None:
    """Look a second time for a message that is nowhere.

    A dead message is in PostgreSQL before it leaves Redis. The first look may have read PostgreSQL before
    the message arrived there, and Redis after it left.
    """
    found = None
    for _ in range(2):
        with suppress(NotFound):
            found = await look_up(services, environment, message_id)
            if found.state not in NOWHERE:
                break
    return found


def _document(
    message_id: MessageId, status: str, *, kept: Kept | None, error: str | None = None
) -> dict[str, Any]:
    return {"message_id": message_id, "status": status, **kept_members(kept), "error": error}


def kept_members(kept: Kept | None) -> dict[str, Any]:
    """The kept result or progress of a message, as members of an answer."""
    members: dict[str, Any] = {KeptKind.RESULT.value: None, KeptKind.PROGRESS.value: None}
    if kept is not None and kept.kind is not KeptKind.CANCELLED:
        members[kept.kind.value] = orjson.Fragment(kept.data)
    return members
