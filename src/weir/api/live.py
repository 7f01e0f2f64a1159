"""The queues of an environment as they change. Each environment is read once for all its streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import orjson

from weir.api.routes.queues import VIEW_BYTES, queue_view
from weir.api.services import Services
from weir.api.watches import MAX_S, QUIET, Watch, Watches, event_of
from weir.model.beside_loop import beside_loop
from weir.model.message import QueueState
from weir.model.names import EnvironmentRef

INTERVAL_S = 1.0

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
        self._watches: Watches[EnvironmentRef, _EnvironmentWatch] = Watches()

    async def open(self, environment: EnvironmentRef) -> AsyncGenerator[bytes]:
        """A stream of events; the first event has all queues. Raises if the queues cannot be read."""
        watch = self._watches.enter(
            environment,
            self._watches.find(environment) or _EnvironmentWatch(self._services, environment),
        )
        try:
            first = await watch.wait_first()
        except BaseException:
            self._watches.leave(environment, watch)
            raise
        return self._events(watch, first)

    async def _events(self, watch: _EnvironmentWatch, known: Look) -> AsyncGenerator[bytes]:
        clock = asyncio.get_running_loop().time
        until = clock() + MAX_S
        try:
            size = len(known.views) * VIEW_BYTES
            yield await beside_loop(_event, size, "snapshot", changed=list(known.views.values()), removed=[])
            while clock() < until and (look := await watch.wait_after(known)) is not None:
                # A client that reads slowly may have missed some looks.
                if look.number == known.number + 1:
                    yield look.event
                else:
                    size = len(look.views) * VIEW_BYTES
                    yield await beside_loop(_change, size, known.views, look.views)
                known = look
        finally:
            self._watches.leave(watch.environment, watch)


class _EnvironmentWatch(Watch[Look]):
    """Looks at an environment every `INTERVAL_S`."""

    name = "live-queues"

    def __init__(self, services: Services, environment: EnvironmentRef) -> None:
        self.environment = environment
        super().__init__(services)

    async def look(self, last: Look | None) -> Look:
        states = await self._services.broker.states(self.environment)
        return await beside_loop(_compare, len(states) * VIEW_BYTES, last, states)

    def pause_s(self, look: Look) -> float:
        return INTERVAL_S


def _compare(last: Look | None, states: list[QueueState]) -> Look:
    """A look at these states after the last one."""
    views = {state.queue.queue: queue_view(state).model_dump() for state in states}
    return Look(
        number=0 if last is None else last.number + 1,
        views=views,
        event=QUIET if last is None else _change(last.views, views),
    )


def _change(before: Views, now: Views) -> bytes:
    changed = [view for name, view in now.items() if before.get(name) != view]
    removed = [name for name in before if name not in now]
    return _event("change", changed=changed, removed=removed) if changed or removed else QUIET


def _event(name: str, **data: Any) -> bytes:
    return event_of(name, orjson.dumps(data))
