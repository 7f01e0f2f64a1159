"""How a message ended, or where it is: looked for in its queue, in what is kept of it, and elsewhere."""

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

# A waiter asks Redis this often: soon at first, for short tasks, and then seldom, for many waiters.
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
"""States of messages that the broker no longer has, and whose end is not recorded anywhere yet."""


def next_pause_s(pause_s: float) -> float:
    """The pause after this one."""
    return min(pause_s * _GROWTH, _LONGEST_PAUSE_S)


async def look_at_outcome(
    services: Services, environment: EnvironmentRef, message_id: MessageId
) -> dict[str, Any]:
    """The outcome of a message, or its state; its result and progress are JSON already."""
    broker = services.broker
    # First the message and then its result: an ack takes one away and puts the other there at once.
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
        # It died just now; who waits is told when its error is known too.
        status = "running"
    return _document(message_id, status, kept=kept, error=_error(found))


async def _look_up_twice(
    services: Services, environment: EnvironmentRef, message_id: MessageId
) -> FoundMessage | None:
    """Look again for a message that is nowhere: a dead one is in PostgreSQL before it leaves Redis.

    The first look may ask PostgreSQL before that and Redis after it.
    """
    found = None
    for _ in range(2):
        with suppress(NotFound):
            found = await look_up(services, environment, message_id)
            if found.state not in NOWHERE:
                break
    return found


def _error(found: FoundMessage) -> str | None:
    for moment in reversed(found.timeline.moments):
        if moment.what == "died":
            return str(moment.details.get("error") or moment.details.get("reason"))
    return None


def _document(
    message_id: MessageId, status: str, *, kept: Kept | None, error: str | None = None
) -> dict[str, Any]:
    return {"message_id": message_id, "status": status, **kept_members(kept), "error": error}


def kept_members(kept: Kept | None) -> dict[str, Any]:
    """What is kept of a message, as members of an answer."""
    members: dict[str, Any] = {KeptKind.RESULT.value: None, KeptKind.PROGRESS.value: None}
    if kept is not None and kept.kind is not KeptKind.CANCELLED:
        members[kept.kind.value] = orjson.Fragment(kept.data)
    return members
