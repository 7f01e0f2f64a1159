"""Lanes for calls: each carries one call at a time, so that the broker need remember only its last."""

from __future__ import annotations

import asyncio
import logging

from weir.broker.broker import Broker, NamedCall
from weir.errors import WeirError
from weir.model.durations import HOUR_MS
from weir.model.ids import new_id
from weir.operations.queue import OperationQueue

log = logging.getLogger(__name__)

IDLE_MS = HOUR_MS
"""Bytes of a call that was given up may be on their way for as long as TCP tries to deliver them, about a
quarter of an hour. Within this the lane must still know that they are late."""
EVERY_S = 60.0


class CallSlots:
    """Names calls. A lane whose call had an unknown outcome is never given back."""

    def __init__(self, process: str | None = None) -> None:
        self._process = process or new_id()
        self._free: list[str] = []
        self._made = 0

    def take(self) -> NamedCall:
        """A fresh call in a lane that no other call uses meanwhile."""
        if self._free:
            return NamedCall(lane=self._free.pop(), id=new_id())
        self._made += 1
        return NamedCall(lane=f"{self._process}/{self._made}", id=new_id())

    def give_back(self, call: NamedCall) -> None:
        """The outcome of the call is known."""
        self._free.append(call.lane)


class IdleCalls:
    """Lets the broker forget the lanes of processes that ended, and of a load that is over.

    A lane is kept as long as an operation in PostgreSQL will ask about its call, for any length of outage.
    """

    def __init__(self, *, queue: OperationQueue, broker: Broker, idle_ms: int = IDLE_MS) -> None:
        self._queue = queue
        self._broker = broker
        self._idle_ms = idle_ms

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.forget()
            except WeirError as error:
                log.debug("idle lanes are not forgotten for now: %s", error)

    async def forget(self) -> int:
        """Forget what nobody can ask about any more; how many lanes."""
        return sum([await self._forget(shard) for shard in range(self._broker.shards)])

    async def _forget(self, shard: int) -> int:
        idle = await self._broker.idle_calls(shard, idle_ms=self._idle_ms)
        if not idle:
            return 0
        needed = await self._queue.asked_about(idle)
        lanes = [lane for lane in idle if lane not in needed]
        return await self._broker.forget_calls(shard, lanes, idle_ms=self._idle_ms)
