"""Looks at a thing once for all streams that watch it: one watch per thing, while a stream needs it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Generic, TypeVar

import structlog

from weir.api.services import Services
from weir.errors import Unavailable, WeirError

MAX_S = 3600.0
"""After this a stream ends and the client connects again."""
QUIET = b": quiet\n\n"
"""A comment that keeps proxies from closing a quiet stream, and that shows when a client has left."""
log = structlog.get_logger("weir.api")

K = TypeVar("K", bound=Hashable)
L = TypeVar("L")


class Watch(ABC, Generic[L]):
    """Looks at one thing again and again while somebody watches it."""

    name = "watch"

    def __init__(self, services: Services) -> None:
        self.streams = 0
        self.over = False
        self._services = services
        self._last: L | None = None
        self._error: WeirError | None = None
        self._looked = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=self.name)

    @abstractmethod
    async def look(self, last: L | None) -> L:
        """Look once. `last` is the look before; return it if nothing changed."""

    @abstractmethod
    def pause_s(self, look: L) -> float | None:
        """How long to wait before the next look; None after the last one."""

    async def wait_first(self) -> L:
        """The last look; if there was none yet, wait for the first."""
        while self._last is None:
            if self.over:
                raise self._error or Unavailable("this process is about to stop; try again", retry_after_s=1)
            await self._looked.wait()
        return self._last

    async def wait_after(self, known: L) -> L | None:
        """Wait for a look after `known`; None if the watch has ended."""
        while self._last is known:
            if self.over:
                return None
            await self._looked.wait()
        return self._last

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        try:
            while not self._services.stopping.is_set():
                look = await self.look(self._last)
                if look is not self._last:
                    self._last = look
                    self._wake()
                pause_s = self.pause_s(look)
                if pause_s is None:
                    return
                await self._pause(pause_s)
        except WeirError as error:
            # Clients see that the stream ended, show that their numbers are old, and connect again.
            self._error = error
        except Exception:
            log.exception("a watch failed", watch=self.name)
        finally:
            self.over = True
            self._wake()

    def _wake(self) -> None:
        looked, self._looked = self._looked, asyncio.Event()
        looked.set()

    async def _pause(self, pause_s: float) -> None:
        try:
            await asyncio.wait_for(self._services.stopping.wait(), pause_s)
        except TimeoutError:
            return


W = TypeVar("W", bound=Watch)  # type: ignore[type-arg]


class Watches(Generic[K, W]):
    """The things that are watched now."""

    def __init__(self) -> None:
        self._watched: dict[K, W] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def find(self, key: K) -> W | None:
        """The watch of a thing; None if nobody watches it."""
        watch = self._watched.get(key)
        return None if watch is None or watch.over else watch

    def enter(self, key: K, watch: W) -> W:
        """Count one stream more."""
        self._watched[key] = watch
        watch.streams += 1
        return watch

    def leave(self, key: K, watch: W) -> None:
        """Count one stream less; with its last stream the watch ends."""
        watch.streams -= 1
        if not watch.streams:
            watch.stop()
            if self._watched.get(key) is watch:
                del self._watched[key]


def event_of(name: str, data: bytes) -> bytes:
    """A server-sent event with a JSON document."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
