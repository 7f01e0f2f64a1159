"""Outcomes: how a message ended and its result, waiting for it if asked to; and the progress before that."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import orjson

from weir.api.auth import Access
from weir.api.bodies import Fields, query_document
from weir.api.hot import HotRequest, HotRoute, decoded
from weir.api.message_lookup import LANDING, QUEUED, FoundMessage, look_up
from weir.api.routes.settle import lease_of, lost
from weir.api.wire import Reply
from weir.control.principals import Role
from weir.errors import NotFound
from weir.model.ids import MessageId, check_id
from weir.model.inspection import MessageState
from weir.model.limits import MAX_RESULT_BYTES, MAX_WAIT_MS
from weir.model.message import Kept, KeptKind

# A waiter asks Redis this often: soon at first, for short tasks, and then seldom, for many waiters.
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.25
_GROWTH = 1.5
_ENDED = frozenset({"done", "dead", "cancelled", "gone"})
_FROM_TIMELINE = {
    "done": "done",
    "dead": "dead",
    "redriven": "dead",
    "cancelled": "cancelled",
    QUEUED: "queued",
}
_NOWHERE = frozenset({"unknown", LANDING})
"""States of messages that the broker no longer has, and whose end is not recorded anywhere yet."""


async def show_outcome(call: HotRequest) -> Reply:
    """`GET /api/v1/messages/{message_id}/outcome`: the outcome, or the state when the wait is over."""
    access = await call.access(Role.READ)
    call.enter()
    fields = Fields(query_document(call.query(), numbers=("wait_ms",)), "query")
    wait_ms = fields.number("wait_ms", least=0, most=MAX_WAIT_MS) or 0
    fields.refuse_rest()
    message_id = MessageId(check_id(decoded(call.parameters["message_id"]), what="message"))
    return Reply.json(await _wait_for_outcome(call, access, message_id, wait_s=wait_ms / 1_000))


async def _wait_for_outcome(
    call: HotRequest, access: Access, message_id: MessageId, *, wait_s: float
) -> dict[str, Any]:
    give_up, pause_s = time.monotonic() + wait_s, _FIRST_PAUSE_S
    leaving = asyncio.ensure_future(_wait_until_pointless(call)) if wait_s else None
    try:
        while True:
            found = await _look(call, access, message_id)
            left_s = give_up - time.monotonic()
            if found["status"] in _ENDED or left_s <= 0 or leaving is None or leaving.done():
                return found
            await asyncio.wait({leaving}, timeout=min(pause_s, left_s))
            pause_s = min(pause_s * _GROWTH, _LONGEST_PAUSE_S)
    finally:
        if leaving is not None:
            leaving.cancel()


async def _wait_until_pointless(call: HotRequest) -> None:
    """Wait until the client leaves or this process stops."""
    stop = asyncio.ensure_future(call.services.stopping.wait())
    gone = asyncio.ensure_future(_wait_for_disconnect(call))
    try:
        await asyncio.wait({stop, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        gone.cancel()


async def _wait_for_disconnect(call: HotRequest) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass


async def _look(call: HotRequest, access: Access, message_id: MessageId) -> dict[str, Any]:
    broker, environment = call.services.broker, access.environment
    # First the message and then its result: an ack takes one away and puts the other there at once.
    queue = await broker.find_message(environment, message_id)
    kept = await broker.kept(environment, message_id)
    if queue is None:
        return await _ended(call, access, message_id, kept)
    detail = await broker.show_message(queue, message_id)
    running = detail is not None and detail.state is MessageState.LEASED
    return _document(message_id, "running" if running else "waiting", kept=kept)


async def _ended(
    call: HotRequest, access: Access, message_id: MessageId, kept: Kept | None
) -> dict[str, Any]:
    if kept is not None and kept.kind is not KeptKind.PROGRESS:
        return _document(message_id, "done" if kept.kind is KeptKind.RESULT else "cancelled", kept=kept)
    found = await _look_up_twice(call, access, message_id)
    if found is None:
        return _document(message_id, "gone", kept=kept)
    status = _FROM_TIMELINE.get(found.state, "gone" if found.detail is None else "waiting")
    if status == "dead" and not found.timeline.has_letter and found.life is None:
        # It died just now; who waits is told when its error is known too.
        status = "running"
    return _document(message_id, status, kept=kept, error=_error(found))


async def _look_up_twice(call: HotRequest, access: Access, message_id: MessageId) -> FoundMessage | None:
    """Look again for a message that is nowhere: a dead one is in PostgreSQL before it leaves Redis.

    The first look may ask PostgreSQL before that and Redis after it.
    """
    found = None
    for _ in range(2):
        with suppress(NotFound):
            found = await look_up(call.services, access.environment, message_id)
            if found.state not in _NOWHERE:
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


async def keep_progress(call: HotRequest) -> Reply:
    """`POST /api/v1/progress`: keep what the holder of a lease tells of its progress."""
    access = await call.access(Role.WRITE)
    _, document = await call.json_body()
    fields = Fields(document)
    lease = lease_of(access, fields)
    progress = fields.json("progress", max_bytes=MAX_RESULT_BYTES)
    fields.refuse_rest()
    if progress is None:
        raise fields.wrong("progress", "is missing")
    if not await call.services.broker.keep_progress(lease, progress):
        raise lost(lease)
    return Reply.json({"id": lease.message_id, "status": "kept"})


ROUTES = (
    HotRoute(path="/api/v1/messages/{message_id}/outcome", endpoints={"GET": show_outcome}, poll=True),
    HotRoute(path="/api/v1/progress", endpoints={"POST": keep_progress}),
)
