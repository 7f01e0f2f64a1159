"""Connections of an event loop: a protocol on its transport, without streams or asyncio tasks in between."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from typing import cast

from weir.client.base_url import BaseUrl, tls_context
from weir.client.http1 import (
    AnswerReader,
    ConnectionFailed,
    HttpAnswer,
    HttpRequest,
    head_of,
    request_bytes,
)
from weir.client.places import Places

HAPPY_EYEBALLS_S = 0.25
"""If an address of the server does not answer for this long, the next one is tried too (RFC 8305)."""
IDLE_S = 15.0
"""Idle connections are closed after this long. The server closes them after 30 s."""


class _LoopConnection(asyncio.Protocol):
    """Carries one request at a time."""

    def __init__(self) -> None:
        self.is_open = True
        self.served = 0
        self.idle_since = 0.0
        self._reader: AnswerReader | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, data: bytes, *, most_bytes: int) -> asyncio.Future[HttpAnswer]:
        """Send a request; the future gets its answer."""
        self._reader = AnswerReader(most_bytes=most_bytes)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return self._answer

    def data_received(self, data: bytes) -> None:
        if self._reader is None:
            # No answer is due. These bytes could not be told from the next answer.
            self.abort()
            return
        try:
            answer = self._reader.feed(data)
        except ConnectionFailed as error:
            self._fail(error)
        else:
            if answer is not None:
                self._finish(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._reader is None:
            return
        reader = self._reader
        try:
            self._finish(reader.end())
        except ConnectionFailed as error:
            why = str(error) if exc is None else str(exc) or type(exc).__name__
            self._fail(ConnectionFailed(why, stale=self.served > 0 and not reader.started))

    def abort(self) -> None:
        self.is_open = False
        self._transport.abort()

    def close(self) -> None:
        self.is_open = False
        if self._transport.get_extra_info("ssl_object") is None:
            self._transport.close()
        else:
            # Closing TLS properly takes a round trip, which a loop that is about to end would cut off.
            self._transport.abort()

    def _finish(self, answer: HttpAnswer) -> None:
        reader, waiting = self._reader, self._answer
        self._reader = self._answer = None
        self.served += 1
        if reader is None or not reader.leaves_connection_usable:
            self.close()
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _fail(self, error: ConnectionFailed) -> None:
        waiting = self._answer
        self._reader = self._answer = None
        self.abort()
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)


class LoopConnections:
    """`Connections` for code with an event loop."""

    def __init__(self, base_urls: Mapping[str, BaseUrl], headers: Mapping[str, str]) -> None:
        self._base_urls = base_urls
        self._heads = {url: head_of({"host": base.authority, **headers}) for url, base in base_urls.items()}
        self._tls: ssl.SSLContext | None = None
        self._idle: dict[str, list[_LoopConnection]] = {}
        self._places = Places()
        self._closed = False

    async def exchange(self, base_url: str, request: HttpRequest, *, timeout_s: float) -> HttpAnswer:
        self._enter_loop()
        data = request_bytes(request, prefix=self._base_urls[base_url].prefix, head=self._heads[base_url])
        try:
            return await self._places.run(
                request.kind, lambda: self._exchange(base_url, data, request), timeout_s=timeout_s
            )
        except OSError as error:
            raise ConnectionFailed(str(error) or type(error).__name__) from None

    async def _exchange(self, base_url: str, data: bytes, request: HttpRequest) -> HttpAnswer:
        connection = self._take_idle(base_url) or await self._connect(self._base_urls[base_url])
        try:
            waiting = connection.ask(data, most_bytes=request.most_bytes)
            if request.meanwhile is not None:
                request.meanwhile()
            answer = await waiting
        except BaseException:
            # Cancelled or out of time: a late answer must not be taken for the answer to another request.
            connection.abort()
            raise
        if connection.is_open:
            connection.idle_since = time.monotonic()
            self._idle.setdefault(base_url, []).append(connection)
            if self._closed:
                self._close_idle()
        return answer

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def aclose(self) -> None:
        self._closed = True
        if not self._places.enter_loop():
            self._close_idle()
            # One turn of the loop, in which the transports let go of their sockets.
            await asyncio.sleep(0)

    def _enter_loop(self) -> None:
        if self._closed:
            raise RuntimeError("the client is closed; make a new one")
        if self._places.enter_loop():
            # Connections of a loop that ended can be neither used nor closed.
            self._idle = {}

    def _take_idle(self, base_url: str) -> _LoopConnection | None:
        """Take the connection that was used last. Connections that were idle for too long are closed."""
        idle = self._idle.get(base_url, [])
        while idle:
            connection = idle.pop()
            if not connection.is_open:
                continue
            if time.monotonic() - connection.idle_since < IDLE_S:
                return connection
            connection.close()
        return None

    async def _connect(self, base: BaseUrl) -> _LoopConnection:
        if base.secure and self._tls is None:
            self._tls = tls_context()
        tls = self._tls if base.secure else None

        async def connect(address: str) -> _LoopConnection:
            _, connection = await asyncio.get_running_loop().create_connection(
                _LoopConnection, address, base.port, ssl=tls, server_hostname=base.host if tls else None
            )
            return connection

        return await _first_open([partial(connect, address) for address in await _addresses(base)])

    def _close_idle(self) -> None:
        for idle in self._idle.values():
            while idle:
                idle.pop().close()


async def _addresses(base: BaseUrl) -> list[str]:
    """The addresses of the server, in the order in which they are tried: the kinds take turns."""
    with suppress(ValueError):
        ipaddress.ip_address(base.host)
        return [base.host]
    found = await asyncio.get_running_loop().getaddrinfo(base.host, base.port, type=socket.SOCK_STREAM)
    by_kind: dict[int, dict[str, None]] = {}
    for kind, _, _, _, address in found:
        by_kind.setdefault(kind, {})[str(address[0])] = None
    rounds = zip_longest(*by_kind.values())
    return [address for one in rounds for address in one if address is not None]


async def _first_open(attempts: Sequence[Callable[[], Awaitable[_LoopConnection]]]) -> _LoopConnection:
    """The first connection that opens. Each attempt begins when the one before failed, or is slow.

    The loops know this by themselves, but not uvloop.
    """
    if len(attempts) == 1:
        return await attempts[0]()
    waiting, running = list(attempts), set[asyncio.Future[_LoopConnection]]()
    failure: BaseException = OSError("the name of the server has no address")
    try:
        while waiting or running:
            if waiting:
                running.add(asyncio.ensure_future(waiting.pop(0)()))
            done, running = await asyncio.wait(
                running,
                timeout=HAPPY_EYEBALLS_S if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            opened = [one.result() for one in done if one.exception() is None]
            for late in opened[1:]:
                late.close()
            if opened:
                return opened[0]
            failure = next((error for one in done if (error := one.exception())), failure)
        raise failure
    finally:
        for one in running:
            one.cancel()
