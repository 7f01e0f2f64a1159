"""The broker for code without an event loop: blocking sockets in the caller's own thread.

Its coroutines never suspend, so one step runs them to their end. Any number of threads may use it, and a
process that was forked may go on using it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from hiredis import pack_command
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.retry import Retry

from weir.broker import keys
from weir.broker.plain_connection import PlainConnection
from weir.broker.plain_protocol import plain_address
from weir.broker.redis import RedisBroker
from weir.broker.runner import Client, RedisConnection, ReplySlot, ScriptRunner, SlotArguments
from weir.broker.waiting import RECONNECT_S, Waiter, Wakeups, woken_idents
from weir.model.clock import Clock
from weir.redis_client import DRIVER_ERRORS

Connection = Any
"""A `PlainConnection`, or one of the driver's, most of whose methods have no types."""


class BlockingRedis:
    """Sends commands over connections of its own; each carries one command at a time."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        # On Windows sockets have other timeouts.
        self._address = plain_address(connection.url) if os.name == "posix" else None
        # Threads take and return connections only by `pop` and `append`, which are atomic.
        self._idle: list[Connection] = []
        self._thread = threading.local()

    def allow(self, seconds: float) -> None:
        """Let this thread send commands for so long. It may still wait for the answer to the last one."""
        self._thread.until = time.monotonic() + seconds

    def use_wait(self, work: Callable[[], None]) -> None:
        """Call `work` in this thread while the answer to its next command is on its way."""
        self._thread.work = work

    async def execute_command(self, *args: Any) -> Any:
        if time.monotonic() > getattr(self._thread, "until", float("inf")):
            raise exceptions.TimeoutError("there is no time for another try")
        connection = self._take()
        try:
            connection.send_packed_command((pack_command(args),))
            if (work := self._thread.__dict__.pop("work", None)) is not None:
                work()
            reply = connection.read_response()
        except exceptions.ResponseError:
            self._idle.append(connection)
            raise
        except BaseException:
            # The idle connections are as old. After a restart of Redis each of them would fail one try.
            self._disconnect([connection, *self._take_all()])
            raise
        self._idle.append(connection)
        return reply

    def connect(self) -> Connection:
        """A connection of the caller's own; it opens when it is first used."""
        wanted = self._connection
        if self._address is not None:
            return PlainConnection(
                self._address, answer_s=wanted.timeout_s, connect_s=wanted.connect_timeout_s
            )
        return _driver_connection(wanted)

    async def aclose(self) -> None:
        self._disconnect(self._take_all())

    def _take(self) -> Connection:
        try:
            connection = self._idle.pop()
        except IndexError:
            return self.connect()
        if connection.pid == os.getpid():
            return connection
        # A fork: these closed copies leave the parent's connections as they are.
        self._disconnect([connection, *self._take_all()])
        return self.connect()

    def _take_all(self) -> list[Connection]:
        taken, self._idle = self._idle, []
        return taken

    def _disconnect(self, connections: Sequence[Connection]) -> None:
        for connection in connections:
            with suppress(*DRIVER_ERRORS):
                connection.disconnect()


def _driver_connection(wanted: RedisConnection) -> Connection:
    """A connection of the driver, for TLS, Unix sockets and URLs with options."""
    # The pool is used only to parse the URL. Its own `make_connection` refuses the 101st connection.
    pool = ConnectionPool.from_url(
        wanted.url,
        protocol=2,
        socket_timeout=wanted.timeout_s,
        socket_connect_timeout=wanted.connect_timeout_s,
        socket_read_size=1 << 18,
        retry=Retry(NoBackoff(), 0),
    )
    return pool.connection_class(**pool.connection_kwargs)


class BlockingRunner(ScriptRunner):
    """Runs scripts, and blocks its thread until they reply.

    What is to be undone waits for the next change.
    """

    _owed: tuple[tuple[str, int, ReplySlot], ...] = ()

    async def change(self, verb: str, shard: int, *args: bytes | int, undo: str = "") -> list[Any]:
        owed, self._owed = self._owed, ()
        for one in owed:
            await self._undo(*one)
        return await super().change(verb, shard, *args, undo=undo)

    def _undo_later(self, verb: str, shard: int, slot: ReplySlot) -> None:
        self._owed += ((verb, shard, slot),)

    async def _send(
        self, verb: str, shard: int, slot: SlotArguments, args: Sequence[bytes | int]
    ) -> list[Any]:
        cast(BlockingRedis, self.client).allow(self._patience_s)
        return await self._send_patiently(verb, shard, slot, args)

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251


class _BlockingWaiter:
    """Listens on a connection of its own."""

    def __init__(self, connection: Connection, *, channel: bytes, ident: bytes) -> None:
        self._connection = connection
        command: tuple[Any, ...] = ("SUBSCRIBE", channel)
        self._subscribe = pack_command(command)
        self._ident = ident
        self._listens = False

    def clear(self) -> None:
        """Does nothing: the next `sleep` reads old wake-ups, and then returns early."""

    def listen(self) -> None:
        with suppress(*DRIVER_ERRORS):
            self._connection.send_packed_command((self._subscribe,))
            self._connection.read_response()
            self._listens = True

    async def sleep(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        if not self._listens:
            # A wake-up may have been missed, so the caller looks again at once.
            time.sleep(min(timeout_s, RECONNECT_S))  # noqa: ASYNC251
            self.listen()
            return
        try:
            while (left_s := until - time.monotonic()) > 0 and self._connection.can_read(left_s):
                _, _, said = self._connection.read_response()
                if woken_idents(said, (self._ident,)):
                    return
        except DRIVER_ERRORS:
            self._listens = False


class BlockingWakeups:
    """Each consumer that waits listens for itself."""

    listens = False
    """Listening costs each waiter a connection, so the caller looks for messages first."""

    def __init__(self, redis: BlockingRedis) -> None:
        self._redis = redis

    @asynccontextmanager
    async def waiter(self, shard: int, ident: bytes) -> AsyncIterator[Waiter]:
        connection = self._redis.connect()
        waiter = _BlockingWaiter(connection, channel=keys.shard_key(shard, "wake"), ident=ident)
        try:
            waiter.listen()
            yield waiter
        finally:
            with suppress(*DRIVER_ERRORS):
                connection.disconnect()

    async def aclose(self) -> None:
        """Does nothing: each waiter closes its own connection."""


class BlockingBroker(RedisBroker):
    """A `RedisBroker` on one server, whose coroutines never suspend."""

    def use_wait(self, work: Callable[[], None]) -> None:
        """Call `work` in this thread while the answer to its next call is on its way."""
        cast(BlockingRedis, self._runner.client).use_wait(work)

    def _open(
        self, connection: RedisConnection, *, clock: Clock | None, metrics: bool, stream_length: int
    ) -> tuple[ScriptRunner, Wakeups]:
        redis = BlockingRedis(connection)
        runner = BlockingRunner(
            cast(Client, redis),
            patience_s=connection.patience_s,
            clock=clock,
            metrics=metrics,
            stream_length=stream_length,
        )
        return runner, BlockingWakeups(redis)
