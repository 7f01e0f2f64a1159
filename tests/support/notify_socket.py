"""A service manager's socket, to which processes send that they are ready and alive."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class NotifySocket:
    """Collects the lines that processes send to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.received: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def wait_for(self, line: str, *, within_s: float = 20.0) -> None:
        """Read until this line comes."""
        deadline = time.monotonic() + within_s
        while line not in self.received:
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                self.received += self._socket.recv(4_096).decode().splitlines()
            except TimeoutError:
                raise AssertionError(f"`{line}` was not sent within {within_s:.0f} s") from None

    def forget(self) -> None:
        """Forget the lines that were sent until now."""
        self._socket.setblocking(False)
        with suppress(BlockingIOError):
            while self._socket.recv(4_096):
                pass
        self.received.clear()

    def close(self) -> None:
        self._socket.close()


@contextmanager
def notify_socket(folder: Path) -> Iterator[NotifySocket]:
    found = NotifySocket(folder / "notify")
    try:
        yield found
    finally:
        found.close()
