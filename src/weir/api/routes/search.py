"""Search over an environment: queues by name, messages by id and by key."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query

from weir.api.auth import App, Reader
from weir.api.message_lookup import look_up
from weir.api.schemas.search import FoundMessageView, SearchView
from weir.api.services import Services
from weir.errors import Conflict, ControlUnavailable, InvalidInput, NotFound
from weir.model.inspection import MessageFilter, MessageState
from weir.model.limits import MAX_NAME_BYTES
from weir.model.message import QueueState
from weir.model.names import EnvironmentRef, QueueRef

router = APIRouter(prefix="/api/v1", tags=["overview"])
MAX_FOUND = 20
# Looking for a key reads the bodies of messages, so it may not occupy Redis for long.
KEY_SEARCH_S = 1.0


@router.get("/search", operation_id="search")
async def search(
    access: Reader,
    services: App,
    q: Annotated[
        str,
        Query(
            min_length=1, max_length=MAX_NAME_BYTES, description="A part of a queue's name, a key or an id."
        ),
    ],
) -> SearchView:
    """Queues by a part of their name, and messages by their id or their whole key."""
    states = await services.broker.states(access.environment)
    messages = await _find_by_id(services, access.environment, q)
    complete = True
    if not messages:
        messages, complete = await _find_by_key(services, states, q)
    names = [state.queue.queue for state in states if q.casefold() in state.queue.queue.casefold()]
    return SearchView(queues=names[:MAX_FOUND], messages=messages, complete=complete)


async def _find_by_id(services: Services, environment: EnvironmentRef, text: str) -> list[FoundMessageView]:
    """The message with that id; empty if the text is not a known id, or while PostgreSQL is away."""
    with suppress(InvalidInput, NotFound, ControlUnavailable):
        found = await look_up(services, environment, text)
        key = None if found.detail is None else found.detail.key
        return [FoundMessageView(message_id=found.message_id, queue=found.queue, state=found.state, key=key)]
    return []


async def _find_by_key(
    services: Services, states: list[QueueState], key: str
) -> tuple[list[FoundMessageView], bool]:
    """Messages with that key, and whether every queue was looked into.

    The emptiest queues come first: most queues are done before a full one takes the rest of the time.
    """
    found: list[FoundMessageView] = []
    until = time.monotonic() + KEY_SEARCH_S
    queues = sorted((state for state in states if state.depth + state.running), key=lambda one: one.depth)
    for state in queues:
        async for page in _with_key(services, state.queue, key):
            found += page
            # Look at the time between two pages: a call is short, and cancelling it would cost a connection.
            if len(found) >= MAX_FOUND or time.monotonic() >= until:
                return found[:MAX_FOUND], False
    return found, True


async def _with_key(services: Services, queue: QueueRef, key: str) -> AsyncIterator[list[FoundMessageView]]:
    """The messages of one queue with that key, page by page, one state after the other."""
    for state in MessageState:
        cursor: str | None = None
        while True:
            # The queue may just have been forgotten, or it has too many leases to look through.
            try:
                page = await services.broker.list_messages(
                    queue, state, match=MessageFilter(key=key), cursor=cursor
                )
            except (NotFound, Conflict):
                break
            yield [
                FoundMessageView(
                    message_id=one.message_id, queue=queue.queue, state=one.state.value, key=one.key
                )
                for one in page.messages
            ]
            cursor = page.cursor
            if cursor is None:
                break
