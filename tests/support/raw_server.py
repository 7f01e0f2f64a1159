"""An HTTP server that answers with bytes that a test wrote down, over real sockets and in threads."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Sequence
from typing import Self

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)

HANG_UP = b""
"""Read the request, answer nothing and close the connection."""
SILENCE = None
"""Read the request and answer nothing."""


def answer(body: bytes, *, status: str = "201 Created", headers: Sequence[str] = ()) -> bytes:
    """A plain answer."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class RawServer:
    """Answers the requests of all connections in the order of a script; the last answer repeats."""

    def __init__(self, *answers: bytes | None, tls: ssl.SSLContext | None = None) -> None:
        self._answers = list(answers)
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self.closing: set[int] = set()
        """The numbers of requests after whose answers the connection is closed, from 0."""
        self.requests: list[tuple[int, bytes]] = []
        """The number of the connection, and the request as it came."""
        self.connections = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Without the shutdown, a thread that accepts would take one more connection.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            one.close()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
                if self._tls is not None:
                    connection = self._tls.wrap_socket(connection, server_side=True)
            except ssl.SSLError:
                continue
            except OSError:
                return
            self._open.append(connection)
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection, self.connections), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        try:
            while request := _read_request(connection):
                with self._lock:
                    place = len(self.requests)
                    self.requests.append((number, request))
                    reply = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                if reply is SILENCE:
                    continue
                connection.sendall(reply)
                if reply == HANG_UP or place in self.closing:
                    break
        except OSError:
            pass
        connection.close()


def _read_request(connection: socket.socket) -> bytes:
    """One request; empty at the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(1 << 16)
        if not chunk:
            return b""
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    found = _LENGTH.search(head)
    missing = (int(found[1]) if found else 0) - len(body)
    while missing > 0:
        chunk = connection.recv(1 << 16)
        if not chunk:
            return b""
        data += chunk
        missing -= len(chunk)
    return data
