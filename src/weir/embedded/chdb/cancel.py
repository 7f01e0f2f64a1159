"""Stops a query whose client hung up, because nobody is left to read the answer."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

# Short enough that an abandoned query does not keep the engine busy, and cheap: one `poll` per query.
_LOOK_EVERY_S = 0.2


class HangUps:
    """Watches the sockets of running queries, and calls `kill` with the mark of a query whose client left."""

    def __init__(self, kill: Callable[[str], None]) -> None:
        self._kill = kill
        self._running: dict[str, socket.socket] = {}
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, name="hang-ups", daemon=True).start()

    @contextmanager
    def watched(self, client: socket.socket) -> Iterator[str]:
        """Watch `client` inside the block; yields the mark that its statement must carry."""
        mark = f"weir:{uuid4().hex}"
        with self._changed:
            self._running[mark] = client
            self._changed.notify()
        try:
            yield mark
        finally:
            with self._changed:
                self._running.pop(mark, None)

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._running)
                running = dict(self._running)
            for mark, client in running.items():
                if _has_left(client):
                    with self._changed:
                        self._running.pop(mark, None)
                    self._kill(mark)
            time.sleep(_LOOK_EVERY_S)


def _has_left(client: socket.socket) -> bool:
    """Whether the client closed its end. A further request that already waits means that it did not."""
    try:
        # Not `select`, which fails for numbers from 1,024 on, and an engine at work has that many files open.
        waiting = select.poll()
        waiting.register(client, select.POLLIN)
        return bool(waiting.poll(0)) and client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except (OSError, ValueError):
        return True
