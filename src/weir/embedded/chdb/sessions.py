"""Keeps sessions: connections that outlive a request because a client set something in them.

Clients name a session on every request, and most never keep anything in it. So a session gets its own
connection only with the first statement that leaves state behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from weir.embedded.chdb.http_errors import RequestRefused

Key = tuple[str, str]
"""User and session id, so that nobody can enter another user's session."""


@dataclass(slots=True, kw_only=True)
class Session:
    connection: Any
    busy: threading.Lock = field(default_factory=threading.Lock)
    idle_until: float = 0.0


class Sessions:
    def __init__(self, connect: Callable[[], Any], *, limit: int = 256) -> None:
        self._connect = connect
        self._limit = limit
        self._open: dict[Key, Session] = {}
        self._guard = threading.Lock()

    def is_open(self, key: Key) -> bool:
        with self._guard:
            self._expire()
            return key in self._open

    @contextmanager
    def connection(self, key: Key, *, timeout_s: float) -> Iterator[Any]:
        """The session's connection, for one request at a time."""
        session = self._find(key)
        if not session.busy.acquire(blocking=False):
            raise RequestRefused(373, "SESSION_IS_LOCKED", "Session is locked by a concurrent client")
        try:
            yield session.connection
        finally:
            session.idle_until = time.monotonic() + timeout_s
            session.busy.release()

    def _find(self, key: Key) -> Session:
        with self._guard:
            self._expire()
            if key not in self._open:
                if len(self._open) >= self._limit:
                    raise RequestRefused(202, "TOO_MANY_SIMULTANEOUS_QUERIES", "Too many sessions")
                self._open[key] = Session(connection=self._connect(), idle_until=time.monotonic() + 60)
            return self._open[key]

    def _expire(self) -> None:
        now = time.monotonic()
        for key, session in list(self._open.items()):
            if session.idle_until < now and session.busy.acquire(blocking=False):
                del self._open[key]
                session.connection.close()

    def close(self) -> None:
        with self._guard:
            for session in self._open.values():
                session.connection.close()
            self._open.clear()
