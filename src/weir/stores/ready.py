"""Waits at the start for stores that run but are not ready: Redis loads its file, PostgreSQL recovers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from weir.broker.preflight import is_loading
from weir.control.inspect import is_starting
from weir.errors import BrokerUnavailable, ControlUnavailable, Unavailable
from weir.settings import StoreUrls

PATIENCE_S = 600.0
"""Loading much data takes minutes; after this time a person should look at the store."""
_LOOK_S = 0.5
_SAY_S = 10.0
Say = Callable[[str], None]


async def stores_ready(urls: StoreUrls, *, say: Say, patience_s: float = PATIENCE_S) -> None:
    """Wait while a store loads or recovers, at most `patience_s`. Do not wait for a store that is absent."""
    await redis_ready(urls.redis, say=say, patience_s=patience_s)
    await postgres_ready(urls.postgres, say=say, patience_s=patience_s)


async def postgres_ready(url: str, *, say: Say, patience_s: float = PATIENCE_S) -> None:
    """The same for a command that needs only PostgreSQL."""
    text = "PostgreSQL is starting up"
    await _wait_while(lambda: is_starting(url), ControlUnavailable(text), say=say, patience_s=patience_s)


async def redis_ready(url: str, *, say: Say, patience_s: float = PATIENCE_S) -> None:
    """The same for a command that needs only Redis."""
    text = "Redis is loading its data"
    await _wait_while(lambda: is_loading(url), BrokerUnavailable(text), say=say, patience_s=patience_s)


async def _wait_while(
    condition: Callable[[], Awaitable[bool]], error: Unavailable, *, say: Say, patience_s: float
) -> None:
    started_s, said_s = time.monotonic(), float("-inf")
    while await condition():
        now_s = time.monotonic()
        if now_s - started_s > patience_s:
            raise type(error)(f"{error}, for {patience_s:.0f} s now; look at its log and try again")
        if now_s - said_s >= _SAY_S:
            say(f"{error}; waiting for it")
            said_s = now_s
        await asyncio.sleep(_LOOK_S)
