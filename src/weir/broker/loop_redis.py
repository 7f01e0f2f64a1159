"""A lean client of one Redis for an event loop: a protocol and hiredis, and nothing in between.

The driver's own client spends about as long in Python on a command as Redis needs for a script. This client
is used for scripts and for wake-ups, where callers would wait for that time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

from hiredis import pack_command
from redis import exceptions

from weir.broker.plain_protocol import PENDING, greeting, new_reader, socket_address

Heard = Callable[[list[Any]], None]


class RedisProtocol(asyncio.Protocol):
    """One connection. It carries one command at a time, or receives publications."""

    def __init__(self, heard: Heard | None = None) -> None:
        self._reader = new_reader()
        self._heard = heard
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Any] | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self.lost.done() and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not PENDING:
                self._take(reply)
        except exceptions.InvalidResponse as error:
            self._fail(exceptions.ConnectionError(f"Redis sent something else than a reply: {error}"))
            self.close()

    def _take(self, reply: Any) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            if self._heard is not None:
                self._heard(reply)
        elif not answer.done():
            answer.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        self._fail(exceptions.ConnectionError(str(exc) if exc else "Redis closed the connection"))

    def _fail(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)

    async def ask(self, args: tuple[Any, ...], *, timeout_s: float) -> Any:
        """Send a command; return its reply. Raises the driver's error for an error, or if no reply comes."""
        if self._transport is None or not self.is_open:
            raise exceptions.ConnectionError("the connection is closed")
        loop = asyncio.get_running_loop()
        answer = self._answer = loop.create_future()
        timer = loop.call_later(timeout_s, self._time_out, answer)
        self._transport.write(pack_command(args))
        try:
            reply = await answer
        finally:
            timer.cancel()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _time_out(self, answer: asyncio.Future[Any]) -> None:
        if not answer.done():
            answer.set_exception(exceptions.TimeoutError("Redis did not answer in time"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class LoopRedis:
    """Sends commands over connections of its own; callers wait for one if all are busy."""

    def __init__(
        self, address: Mapping[str, Any], *, max_connections: int, answer_s: float, connect_s: float
    ) -> None:
        self._address = address
        self._room = max_connections
        self._answer_s = answer_s
        self._connect_s = connect_s
        self._idle: list[RedisProtocol] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    async def execute_command(self, *args: Any) -> Any:
        """The reply to one command. A connection whose reply did not come is not used again."""
        await self._enter()
        try:
            connection = await self._take_connection()
            try:
                reply = await connection.ask(args, timeout_s=self._answer_s)
            except exceptions.ResponseError:
                self._keep(connection)
                raise
            except BaseException:
                connection.close()
                raise
            self._keep(connection)
            return reply
        finally:
            self._leave()

    async def connect(self, heard: Heard | None = None) -> RedisProtocol:
        """Open a connection of the caller's own; `heard` gets replies that no command waits for."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_s):
                _, connection = await loop.create_connection(
                    lambda: RedisProtocol(heard), *socket_address(self._address)
                )
        except TimeoutError:
            raise exceptions.TimeoutError("Redis did not accept a connection in time") from None
        except OSError as error:
            raise exceptions.ConnectionError(str(error)) from error
        try:
            for command in greeting(self._address):
                await connection.ask(command, timeout_s=self._connect_s)
        except BaseException:
            connection.close()
            raise
        return connection

    async def aclose(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        # The transports end in the next turn of the loop, which may be closed right after.
        await asyncio.sleep(0)

    async def _enter(self) -> None:
        """Wait for room for one command, in the order of arrival."""
        if self._room > 0 and not self._waiting:
            self._room -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._answer_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                # The turn came at the moment of giving up: the next command gets it.
                self._leave()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise exceptions.ConnectionError("all connections are busy") from None
            raise

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._room += 1

    async def _take_connection(self) -> RedisProtocol:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return await self.connect()

    def _keep(self, connection: RedisProtocol) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
