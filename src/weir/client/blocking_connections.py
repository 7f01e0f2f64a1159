"""Connections for code without an event loop: blocking sockets in the caller's own thread.

These coroutines never suspend, so `run_blocking` runs whatever is built on them to its end in one step. The
client is written once, as coroutines, and a blocking call costs no hop to another thread.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from weir.client.base_url import BaseUrl, tls_context
from weir.client.http1 import (
    AnswerReader,
    ConnectionFailed,
    HttpAnswer,
    HttpRequest,
    head_of,
    request_bytes,
)
from weir.client.loop_connections import IDLE_S

T = TypeVar("T")
_CHUNK = 1 << 16
_NEXT_ADDRESS_S = 1.0
"""If a name has several addresses, one that does not answer for this long is left for the next one."""
_LOOK_AFTER_S = 0.5
"""A connection that was idle for longer is looked at before it is used."""


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing but blocking connections."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a blocking call waited for an event loop")


class _BlockingConnection:
    """Carries one request at a time, for one thread at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.served = 0
        self.idle_since = 0.0
        self.process = os.getpid()

    def ask(self, data: bytes, request: HttpRequest, *, until: float) -> tuple[HttpAnswer, bool]:
        """The answer to a request, and whether the connection may carry another one."""
        reader = AnswerReader(most_bytes=request.most_bytes)
        try:
            self._allow(until)
            self._sock.sendall(data)
            if request.meanwhile is not None:
                request.meanwhile()
                self._allow(until)
            while True:
                chunk = self._sock.recv(_CHUNK)
                if not chunk:
                    return reader.end(), False
                answer = reader.feed(chunk)
                if answer is not None:
                    self.served += 1
                    return answer, reader.leaves_connection_usable
                self._allow(until)
        except TimeoutError:
            raise
        except (OSError, ConnectionFailed) as error:
            stale = self.served > 0 and not reader.started
            raise ConnectionFailed(str(error) or type(error).__name__, stale=stale) from None

    def _allow(self, until: float) -> None:
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(left_s)

    def is_usable(self) -> bool:
        """Whether this process opened it, it was not idle for too long, and the server sent nothing."""
        idle_s = time.monotonic() - self.idle_since
        if self.process != os.getpid() or idle_s > IDLE_S:
            return False
        if idle_s < _LOOK_AFTER_S:
            return True
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        # Readable means that the server closed the connection, because it owes no answer.
        return not poll.poll(0)

    def close(self) -> None:
        # After a fork this closes the child's copy alone; the parent's connection stays.
        with suppress(OSError):
            self._sock.close()


class BlockingConnections:
    """`Connections` for threads. Each request takes a connection of its own for as long as it runs."""

    def __init__(self, base_urls: Mapping[str, BaseUrl], headers: Mapping[str, str]) -> None:
        self._base_urls = base_urls
        self._heads = {url: head_of({"host": base.authority, **headers}) for url, base in base_urls.items()}
        self._tls: ssl.SSLContext | None = None
        # Threads change these lists by `pop` and `append` only, which are atomic.
        self._idle: dict[str, list[_BlockingConnection]] = {url: [] for url in base_urls}
        self._worked: dict[str, Any] = {}
        """The address that answered last, by host and port."""
        self._closed = False

    async def exchange(self, base_url: str, request: HttpRequest, *, timeout_s: float) -> HttpAnswer:
        if self._closed:
            raise RuntimeError("the client is closed; make a new one")
        data = request_bytes(request, prefix=self._base_urls[base_url].prefix, head=self._heads[base_url])
        until = time.monotonic() + timeout_s
        try:
            return self._exchange(base_url, data, request, until=until)
        except TimeoutError:
            raise ConnectionFailed(f"no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise ConnectionFailed(str(error) or type(error).__name__) from None

    def _exchange(self, base_url: str, data: bytes, request: HttpRequest, *, until: float) -> HttpAnswer:
        connection = self._take_idle(base_url) or self._connect(self._base_urls[base_url], until=until)
        try:
            answer, usable = connection.ask(data, request, until=until)
        except BaseException:
            connection.close()
            raise
        if not usable or self._closed:
            connection.close()
            return answer
        connection.idle_since = time.monotonic()
        self._idle[base_url].append(connection)
        return answer

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251

    async def aclose(self) -> None:
        self._closed = True
        for idle in self._idle.values():
            with suppress(IndexError):
                while True:
                    idle.pop().close()

    def _take_idle(self, base_url: str) -> _BlockingConnection | None:
        """Take the usable connection that was used last. Unusable connections on the way are closed."""
        idle = self._idle[base_url]
        with suppress(IndexError):
            while True:
                connection = idle.pop()
                if connection.is_usable():
                    return connection
                connection.close()
        return None

    def _connect(self, base: BaseUrl, *, until: float) -> _BlockingConnection:
        sock = self._open_socket(base, until=until)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if base.secure:
                if self._tls is None:
                    self._tls = tls_context()
                sock = self._tls.wrap_socket(sock, server_hostname=base.host)
        except BaseException:
            sock.close()
            raise
        return _BlockingConnection(sock)

    def _open_socket(self, base: BaseUrl, *, until: float) -> socket.socket:
        """A socket to the first address that answers. The address that worked last comes first."""
        found = socket.getaddrinfo(base.host, base.port, type=socket.SOCK_STREAM)
        last = self._worked.get(base.authority)
        addresses = sorted(found, key=lambda one: one[4] != last)
        failure: OSError = TimeoutError()
        for at, (family, kind, protocol, _, address) in enumerate(addresses, start=1):
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(left_s if at == len(addresses) else min(left_s, _NEXT_ADDRESS_S))
                sock.connect(address)
            except OSError as error:
                sock.close()
                failure = error
            else:
                sock.settimeout(max(until - time.monotonic(), 0.001))
                self._worked[base.authority] = address
                return sock
        raise failure
