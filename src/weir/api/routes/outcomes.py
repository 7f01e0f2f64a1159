"""Outcomes: how a message ended, with its result; a request may wait for it. Also the progress before."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from weir.api.auth import Access
from weir.api.bodies import Fields, query_document
from weir.api.hot import HotRequest, HotRoute, decoded
from weir.api.outcomes import ENDED, FIRST_PAUSE_S, look_at_outcome, next_pause_s
from weir.api.routes.settle import lease_of, lost
from weir.api.wire import Reply
from weir.control.principals import Role
from weir.model.ids import MessageId, check_id
from weir.model.limits import MAX_RESULT_BYTES, MAX_WAIT_MS


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
    if not wait_s:
        return await look_at_outcome(call.services, access.environment, message_id)
    with call.watching_token() as ended:
        found = await _wait_for_end(call, access, message_id, wait_s=wait_s, ended=ended)
    await call.check_token()
    return found


async def _wait_for_end(
    call: HotRequest, access: Access, message_id: MessageId, *, wait_s: float, ended: asyncio.Event
) -> dict[str, Any]:
    give_up, pause_s = time.monotonic() + wait_s, FIRST_PAUSE_S
    leaving = asyncio.ensure_future(_wait_until_pointless(call, ended))
    try:
        while True:
            found = await look_at_outcome(call.services, access.environment, message_id)
            left_s = give_up - time.monotonic()
            if found["status"] in ENDED or left_s <= 0 or leaving.done():
                return found
            await asyncio.wait({leaving}, timeout=min(pause_s, left_s))
            pause_s = next_pause_s(pause_s)
    finally:
        leaving.cancel()


async def _wait_until_pointless(call: HotRequest, ended: asyncio.Event) -> None:
    """Wait until the client leaves, its token ends or this process stops."""
    waits = (call.services.stopping.wait(), call.wait_for_disconnect(), ended.wait())
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def keep_progress(call: HotRequest) -> Reply:
    """`POST /api/v1/progress`: keep the progress that a handler reports with its lease."""
    access = await call.access(Role.WRITE)
    body, document = await call.json_body()
    fields = Fields(document, text=body)
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
