"""The queues of an environment as they change, asked for once for all streams that watch it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson
import structlog

from weir.api.routes.queues import queue_view
from weir.api.services import Services
from weir.errors import Unavailable, WeirError
from weir.model.names import EnvironmentRef

INTERVAL_S = 1.0
MAX_S = 3600.0
"""After this a stream ends and the client connects again, so that a revoked token does not watch for ever."""
_QUIET = b": quiet\n\n"
"""A comment keeps proxies from closing a quiet stream, and shows a gone client."""
log = structlog.get_logger("weir.api")

Views = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All queues of an environment at one moment, and what changed since the look before."""

    number: int
    views: Views
    event: bytes


class LiveQueues:
    """The environments that are watched now."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._watched: dict[EnvironmentRef, _EnvironmentWatch] = {}

    async def open(self, environment: EnvironmentRef) -> AsyncIterator[bytes]:
        """A stream of events, the first of which has all queues. Raises if they cannot be had."""
        watch = self._watched.get(environment)
        if watch is None or watch.over:
            watch = self._watched[environment] = _EnvironmentWatch(self._services, environment)
        watch.streams += 1
        try:
            first = await watch.wait_first()
        except BaseException:
            self._leave(watch)
            raise
        return self._events(watch, first)

    async def _events(self, watch: _EnvironmentWatch, known: Look) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        until = clock() + MAX_S
        try:
            yield _event("snapshot", changed=list(known.views.values()), removed=[])
            while clock() < until and (look := await watch.wait_after(known)) is not None:
                # A client that reads slowly may have missed some looks.
                yield look.event if look.number == known.number + 1 else _change(known.views, look.views)
                known = look
        finally:
            self._leave(watch)

    def _leave(self, watch: _EnvironmentWatch) -> None:
        watch.streams -= 1
        if not watch.streams:
            watch.stop()
            if self._watched.get(watch.environment) is watch:
                del self._watched[watch.environment]


class _EnvironmentWatch:
    """Looks at an environment every `INTERVAL_S` while somebody watches it."""

    def __init__(self, services: Services, environment: EnvironmentRef) -> None:
        self.environment = environment
        self.streams = 0
        self.over = False
        self._services = services
        self._last: Look | None = None
        self._error: WeirError | None = None
        self._looked = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="live-queues")

    async def wait_first(self) -> Look:
        """The last look; if there was none yet, wait for the first."""
        while self._last is None:
            if self.over:
                raise self._error or Unavailable("this process is about to stop; try again", retry_after_s=1)
            await self._looked.wait()
        return self._last

    async def wait_after(self, known: Look) -> Look | None:
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
                self._publish(await self._views())
                await self._pause()
        except WeirError as error:
            # Clients see the end, say that their numbers are old, and connect again.
            self._error = error
        except Exception:
            log.exception("watching queues failed")
        finally:
            self.over = True
            self._wake()

    async def _views(self) -> Views:
        states = await self._services.broker.states(self.environment)
        return {state.queue.queue: queue_view(state).model_dump() for state in states}

    def _publish(self, views: Views) -> None:
        last = self._last
        self._last = Look(
            number=0 if last is None else last.number + 1,
            views=views,
            event=_QUIET if last is None else _change(last.views, views),
        )
        self._wake()

    def _wake(self) -> None:
        looked, self._looked = self._looked, asyncio.Event()
        looked.set()

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._services.stopping.wait(), INTERVAL_S)
        except TimeoutError:
            return


def _change(before: Views, now: Views) -> bytes:
    changed = [view for name, view in now.items() if before.get(name) != view]
    removed = [name for name in before if name not in now]
    return _event("change", changed=changed, removed=removed) if changed or removed else _QUIET


def _event(name: str, **data: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"
