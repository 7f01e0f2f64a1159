"""Long polling: consumers that found nothing sleep until a script says that their queue may be served.

The scripts publish the ident of a queue or an environment when it becomes servable. One connection of
this process listens for all its consumers; nobody polls. Should the connection break, everyone is woken
when it is back, since a word may have been missed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Protocol

from weir.broker import keys
from weir.broker.runner import Client, RedisConnection, connect
from weir.model.asyncio_tasks import cancel_and_wait
from weir.redis_client import DRIVER_ERRORS, node_url

_RECONNECT_S = 0.2
_CONNECT_S = 1.0


class Waiter(Protocol):
    """A consumer that found nothing."""

    def clear(self) -> None:
        """Forget the wake-ups of before: the caller looks for messages right after."""

    async def sleep(self, timeout_s: float) -> None:
        """Return after a wake-up, or after this long."""


class Wakeups(Protocol):
    """Wakes the consumers of one process."""

    def waiter(self, shard: int, ident: bytes) -> AbstractAsyncContextManager[Waiter]:
        """Waits for the queue or environment to become servable; for any of the shard if it is `b""`."""

    async def aclose(self) -> None: ...


def wakes(said: bytes, ident: bytes) -> bool:
    """Whether a word about a queue or environment concerns who waits for `ident`."""
    environment = keys.environment_part(said)
    return ident in (b"", said, environment) or (said == environment and ident.startswith(said))


class _EventWaiter(asyncio.Event):
    async def sleep(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.wait(), timeout_s)


class LoopWakeups:
    """Who waits for what in an event loop, and the task that wakes them.

    `shard` is the only one that anybody waits for; None means that it may be any.
    """

    def __init__(self, connection: RedisConnection, *, shard: int | None = None) -> None:
        # Publications reach every node of a cluster, so listening to one of them is enough.
        self._connection = replace(connection, url=node_url(connection.url))
        self._shard = shard
        self._waiters: dict[bytes, set[_EventWaiter]] = {}
        self._listening = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def waiter(self, shard: int, ident: bytes) -> AsyncIterator[Waiter]:
        await self._listen()
        event = _EventWaiter()
        place = keys.shard_key(shard, "wake") + ident
        self._waiters.setdefault(place, set()).add(event)
        try:
            yield event
        finally:
            self._waiters[place].discard(event)
            if not self._waiters[place]:
                del self._waiters[place]

    async def _listen(self) -> None:
        """Return once wake-ups arrive, or after a moment if Redis is away."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="weir-wakeups")
        if not self._listening.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._listening.wait(), _CONNECT_S)

    async def aclose(self) -> None:
        if self._task is not None:
            await cancel_and_wait([self._task])
            self._task = None
        self._wake_all()

    async def _run(self) -> None:
        while True:
            client = connect(self._connection)
            try:
                await self._serve(client)
            except DRIVER_ERRORS:
                await asyncio.sleep(_RECONNECT_S)
            finally:
                self._listening.clear()
                with contextlib.suppress(*DRIVER_ERRORS):
                    await client.aclose()

    async def _serve(self, client: Client) -> None:
        async with client.pubsub() as channel:
            if self._shard is None:
                await channel.psubscribe(keys.EVERY_WAKE)
            else:
                await channel.subscribe(keys.shard_key(self._shard, "wake"))
            async for message in channel.listen():
                if message["type"] in ("psubscribe", "subscribe"):
                    self._listening.set()
                    self._wake_all()
                elif message["type"] in ("pmessage", "message"):
                    self._wake(message["channel"], message["data"])

    def _wake(self, channel: bytes, ident: bytes) -> None:
        """Wake those who wait for this queue or environment, for its environment, or for the shard."""
        environment = keys.environment_part(ident)
        places = [channel + ident, channel + environment, channel]
        if ident == environment:
            places = [place for place in self._waiters if place.startswith(channel + ident)]
            places.append(channel)
        for place in places:
            for event in self._waiters.get(place, ()):
                event.set()

    def _wake_all(self) -> None:
        for events in self._waiters.values():
            for event in events:
                event.set()
