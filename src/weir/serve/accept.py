"""Accepts all waiting connections in one turn of the event loop.

libuv accepts one connection per turn. In a burst a turn takes several milliseconds for other clients'
requests, so the last of some hundred new clients would wait for a second before its first byte is read.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress

from weir.serve.tls import CertificateFiles, TlsHandshake
from weir.serve.unfinished import UnfinishedRequests

MAX_PER_TURN = 64
"""Connections that are accepted before the event loop serves others again."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_CONNECTION_FAILED = frozenset(
    {
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOPROTOOPT,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.EPROTO,
    }
)
"""`accept` on Linux also raises errors of the connection itself; the next one may be fine."""
_PAUSE_S = 0.2
"""Pause before the next `accept` when no file descriptor is left."""
_TLS_GOODBYE_S = 2.0
"""How long a client may take to close TLS; data that it still sends until then is ignored."""


class Acceptor:
    """Accepts the connections of a listening socket for `factory`; closes as asyncio's servers do.

    `relieve` is asked to close some connections when no file descriptor is left. With `tls`, a connection
    has its protocol after its handshake, and is among the `unfinished` until then.
    """

    def __init__(
        self,
        listener: socket.socket,
        factory: Callable[[], asyncio.Protocol],
        *,
        backlog: int,
        relieve: Callable[[int], None] = lambda _: None,
        tls: CertificateFiles | None = None,
        unfinished: UnfinishedRequests | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._factory = factory
        self._relieve = relieve
        self._tls = tls
        self._unfinished = unfinished
        self._closed = False
        self._arriving: set[asyncio.Task[None]] = set()
        self._handshakes: set[TlsHandshake] = set()
        listener.setblocking(False)
        listener.listen(backlog)
        self._listen()

    def close(self) -> None:
        """Accept nothing more, and end unfinished handshakes. The owner closes the socket."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener.fileno())
        for handshake in self._handshakes:
            handshake.hang_up()

    async def wait_closed(self) -> None:
        """Wait until every accepted connection has its protocol, or is closed."""
        await asyncio.gather(*self._arriving)

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(MAX_PER_TURN):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _CONNECTION_FAILED:
                    continue
                if error.errno not in _EXHAUSTED:
                    raise
                # Nothing can be accepted until something closes. Waiting clients stay in the kernel's queue.
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(_PAUSE_S, self._listen)
                self._relieve(MAX_PER_TURN)
                return
            task = self._loop.create_task(self._connect(connection, address))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    async def _connect(self, connection: socket.socket, address: tuple[object, ...]) -> None:
        connection.setblocking(False)
        if self._tls is not None and self._unfinished is not None:
            await self._shake_hands(connection, address, self._tls, self._unfinished)
            return
        transport, _ = await self._loop.connect_accepted_socket(self._factory, connection)
        if self._closed:
            transport.close()

    async def _shake_hands(
        self,
        connection: socket.socket,
        address: tuple[object, ...],
        tls: CertificateFiles,
        unfinished: UnfinishedRequests,
    ) -> None:
        handshake = TlsHandshake(connection, address)
        unfinished.add(handshake)
        self._handshakes.add(handshake)
        # A client that speaks no TLS, leaves, or takes too long is not an error of this process.
        with suppress(OSError):
            try:
                transport, _ = await self._loop.connect_accepted_socket(
                    self._factory, connection, ssl=tls.context, ssl_shutdown_timeout=_TLS_GOODBYE_S
                )
            finally:
                unfinished.discard(handshake)
                self._handshakes.discard(handshake)
            if self._closed:
                transport.close()
