"""Long polling: consumers that found nothing sleep until a script says that their queue may be served.

The scripts publish the ident of a queue or an environment when it becomes servable. One connection of
this process listens for all its consumers; nobody polls. If the connection breaks, all consumers are woken
when it is back, because a wake-up may have been missed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from redis import exceptions

from weir.broker import keys
from weir.broker.loop_redis import LoopRedis
from weir.broker.runner import Client, RedisConnection, ScriptClient, script_client
from weir.model.asyncio_tasks import cancel_and_wait
from weir.redis_client import DRIVER_ERRORS, node_url

RECONNECT_S = 0.2
_CONNECT_S = 1.0


class Waiter(Protocol):
    """A consumer that found nothing."""

    def clear(self) -> None:
        """Forget earlier wake-ups: the caller looks for messages right after."""

    async def sleep(self, timeout_s: float) -> None:
        """Return after a wake-up, or after this long."""


class Wakeups(Protocol):
    """Wakes the consumers of one process."""

    @property
    def listens(self) -> bool:
        """Whether a new waiter hears wake-ups at once and at no cost."""

    def waiter(self, shard: int, ident: bytes) -> AbstractAsyncContextManager[Waiter]:
        """Waits for a queue or environment to become servable; for any of the shard if `ident` is `b""`."""

    async def aclose(self) -> None: ...


def woken_idents(said: bytes, waiting: Collection[bytes]) -> list[bytes]:
    """The idents among `waiting` that a wake-up concerns: of a queue or environment, of its environment or
    queues, and `b""` for the shard."""
    environment = keys.environment_part(said)
    if said == environment:
        return [ident for ident in waiting if not ident or ident.startswith(said)]
    return [ident for ident in (said, environment, b"") if ident in waiting]


class _LoopWaiter:
    """Sleeps in an event loop. A future and a timer cost less than an event and a task that times out."""

    def __init__(self) -> None:
        self._is_woken = False
        self._sleeper: asyncio.Future[None] | None = None

    def clear(self) -> None:
        self._is_woken = False

    def wake(self) -> None:
        self._is_woken = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def sleep(self, timeout_s: float) -> None:
        if self._is_woken:
            return
        loop = asyncio.get_running_loop()
        self._sleeper = loop.create_future()
        timer = loop.call_later(timeout_s, self.wake)
        try:
            await self._sleeper
        finally:
            timer.cancel()
            self._sleeper = None


class LoopWakeups:
    """The waiting consumers of an event loop, and the asyncio task that wakes them.

    `shard` is the only shard that consumers wait for; None means any shard.
    """

    def __init__(self, connection: RedisConnection, *, shard: int | None = None) -> None:
        # Publications reach every node of a cluster, so listening to one of them is enough.
        self._connection = replace(connection, url=node_url(connection.url))
        self._shard = shard
        self._waiters: defaultdict[bytes, dict[bytes, set[_LoopWaiter]]] = defaultdict(dict)
        """By the channel of their shard, and by ident."""
        self._listening = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def listens(self) -> bool:
        return self._listening.is_set()

    @asynccontextmanager
    async def waiter(self, shard: int, ident: bytes) -> AsyncIterator[Waiter]:
        await self._listen()
        waiter = _LoopWaiter()
        waiters = self._waiters[keys.shard_key(shard, "wake")]
        waiters.setdefault(ident, set()).add(waiter)
        try:
            yield waiter
        finally:
            waiters[ident].discard(waiter)
            if not waiters[ident]:
                del waiters[ident]

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
            try:
                await self._listen_on(script_client(self._connection))
            except DRIVER_ERRORS:
                await asyncio.sleep(RECONNECT_S)
            finally:
                self._listening.clear()

    async def _listen_on(self, client: ScriptClient) -> None:
        try:
            if isinstance(client, LoopRedis):
                await self._listen_leanly(client)
            else:
                await self._listen_with_driver(client)
        finally:
            with contextlib.suppress(*DRIVER_ERRORS):
                await client.aclose()

    async def _listen_leanly(self, client: LoopRedis) -> None:
        connection = await client.connect(self._hear)
        try:
            await connection.ask(self._subscription(), timeout_s=_CONNECT_S)
            self._begin()
            await connection.lost
        finally:
            connection.close()
        raise exceptions.ConnectionError("Redis closed the connection")

    async def _listen_with_driver(self, client: Client) -> None:
        async with client.pubsub() as channel:
            command, name = self._subscription()
            await (channel.psubscribe(name) if command == "PSUBSCRIBE" else channel.subscribe(name))
            async for message in channel.listen():
                if message["type"] in ("psubscribe", "subscribe"):
                    self._begin()
                elif message["type"] in ("pmessage", "message"):
                    self._wake(message["channel"], message["data"])

    def _subscription(self) -> tuple[str, bytes]:
        if self._shard is None:
            return "PSUBSCRIBE", keys.EVERY_WAKE
        return "SUBSCRIBE", keys.shard_key(self._shard, "wake")

    def _begin(self) -> None:
        self._listening.set()
        self._wake_all()

    def _hear(self, said: list[Any]) -> None:
        """Handle a publication: its kind, the pattern if one was asked for, the channel and the ident."""
        *_, channel, ident = said
        self._wake(channel, ident)

    def _wake(self, channel: bytes, ident: bytes) -> None:
        """Wake the consumers that a wake-up for a queue or environment concerns."""
        waiters = self._waiters[channel]
        for woken in woken_idents(ident, waiters):
            for waiter in waiters[woken]:
                waiter.wake()

    def _wake_all(self) -> None:
        for by_ident in self._waiters.values():
            for waiters in by_ident.values():
                for waiter in waiters:
                    waiter.wake()
