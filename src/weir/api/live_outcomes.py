"""The outcomes of messages as they change. Each message is read once for all streams that watch it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import orjson

from weir.api.outcomes import ENDED, FIRST_PAUSE_S, look_at_outcome, next_pause_s
from weir.api.services import Services
from weir.api.watches import MAX_S, QUIET, Watch, Watches, event_of
from weir.model.ids import MessageId
from weir.model.names import EnvironmentRef

QUIET_S = 5.0
"""A stream without news sends a comment this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeLook:
    """The outcome of a message at one moment, as JSON."""

    document: bytes
    ended: bool


class LiveOutcomes:
    """The messages that are watched now."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._watches: Watches[tuple[EnvironmentRef, MessageId], _OutcomeWatch] = Watches()

    async def open(self, environment: EnvironmentRef, message_id: MessageId) -> AsyncGenerator[bytes]:
        """A stream of events, from the present state of a message to its end. Raises if it cannot be read."""
        key = environment, message_id
        watch = self._watches.enter(key, self._watches.find(key) or _OutcomeWatch(self._services, *key))
        try:
            first = await watch.wait_first()
        except BaseException:
            self._watches.leave(key, watch)
            raise
        return self._events(watch, first)

    async def _events(self, watch: _OutcomeWatch, look: OutcomeLook) -> AsyncGenerator[bytes]:
        clock = asyncio.get_running_loop().time
        until = clock() + MAX_S
        try:
            yield _event(look)
            while not look.ended and clock() < until:
                try:
                    async with asyncio.timeout(QUIET_S):
                        found = await watch.wait_after(look)
                except TimeoutError:
                    yield QUIET
                    continue
                if found is None:
                    return
                look = found
                yield _event(look)
        finally:
            self._watches.leave((watch.environment, watch.message_id), watch)


class _OutcomeWatch(Watch[OutcomeLook]):
    """Looks at a message until it has ended: often at first, for short tasks, and then less often."""

    name = "live-outcome"

    def __init__(self, services: Services, environment: EnvironmentRef, message_id: MessageId) -> None:
        self.environment = environment
        self.message_id = message_id
        self._pause_s = FIRST_PAUSE_S
        super().__init__(services)

    async def look(self, last: OutcomeLook | None) -> OutcomeLook:
        found = await look_at_outcome(self._services, self.environment, self.message_id)
        document = orjson.dumps(found)
        if last is not None and last.document == document:
            return last
        return OutcomeLook(document=document, ended=found["status"] in ENDED)

    def pause_s(self, look: OutcomeLook) -> float | None:
        if look.ended:
            return None
        pause_s, self._pause_s = self._pause_s, next_pause_s(self._pause_s)
        return pause_s


def _event(look: OutcomeLook) -> bytes:
    return event_of("end" if look.ended else "change", look.document)
