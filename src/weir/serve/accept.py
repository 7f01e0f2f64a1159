"""Taking connections: all that wait, in one turn of the event loop.

libuv takes one connection a turn. In a burst a turn is several milliseconds of other clients' requests, so
the last of some hundred newcomers would wait for a second before its first byte is read.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

A_TURN = 64
"""Connections taken before others get their turn again."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_OF_THE_CONNECTION = frozenset(
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
"""Linux tells here what is already wrong with the connection; the next one may be fine."""
_RESPITE_S = 0.2


class Acceptor:
    """A listening socket and what is made of its connections; closes as asyncio's servers do.

    `relieve` is asked to close some connections when no file descriptor is left.
    """

    def __init__(
        self,
        listener: socket.socket,
        factory: Callable[[], asyncio.Protocol],
        *,
        backlog: int,
        relieve: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._factory = factory
        self._relieve = relieve
        self._closed = False
        self._arriving: set[asyncio.Task[None]] = set()
        listener.setblocking(False)
        listener.listen(backlog)
        self._listen()

    def close(self) -> None:
        """Take nothing more. The socket itself is its owner's."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener.fileno())

    async def wait_closed(self) -> None:
        """Until those that were just taken are answered or turned away."""
        await asyncio.gather(*self._arriving)

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(A_TURN):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OF_THE_CONNECTION:
                    continue
                if error.errno not in _EXHAUSTED:
                    raise
                # Nothing can be taken until something closes: those who wait stay in the kernel's line.
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(_RESPITE_S, self._listen)
                self._relieve(A_TURN)
                return
            task = self._loop.create_task(self._welcome(connection))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    async def _welcome(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        transport, _ = await self._loop.connect_accepted_socket(self._factory, connection)
        if self._closed:
            transport.close()
