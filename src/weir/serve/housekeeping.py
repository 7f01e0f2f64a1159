"""Work that a broker needs at intervals: sweeps, and heartbeats of queues that nobody touches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from weir.broker.broker import HEARTBEAT_MS, Broker
from weir.errors import WeirError
from weir.model.backoff import Backoff

log = structlog.get_logger("weir.serve")

SWEEP_S = 0.5
BACKOFF = Backoff(first_s=0.5, longest_s=5.0)


class Sweeper:
    """Returns messages of lapsed leases and expires old messages, in every shard.

    Any number of processes may do so at once.
    """

    def __init__(self, broker: Broker, *, every_s: float = SWEEP_S) -> None:
        self._broker = broker
        self._every_s = every_s

    async def run(self) -> None:
        await _in_each_shard(self._broker, self.sweep, every_s=self._every_s, name="sweep")

    async def sweep(self, shard: int) -> None:
        while (await self._broker.sweep(shard)).more:
            pass


class Heart:
    """Emits an event for each queue that nobody touches, so that charts show it as stuck and not as gone."""

    def __init__(self, broker: Broker, *, every_s: float = HEARTBEAT_MS / 1_000) -> None:
        self._broker = broker
        self._every_s = every_s

    async def run(self) -> None:
        await _in_each_shard(self._broker, self._beat, every_s=self._every_s, name="heartbeat")

    async def _beat(self, shard: int) -> None:
        await self._broker.heartbeat(shard)


async def _in_each_shard(
    broker: Broker, work: Callable[[int], Awaitable[None]], *, every_s: float, name: str
) -> None:
    """Do the same in every shard, for ever. A shard that is away or slow delays none of the others."""

    async def repeat(shard: int) -> None:
        failures = 0
        while True:
            pause_s = every_s
            try:
                await work(shard)
                failures = 0
            except WeirError as error:
                failures += 1
                pause_s = max(every_s, BACKOFF.pause_s(failures))
                log.warning(f"a shard gets no {name}", shard=shard, code=error.code, error=str(error))
            await asyncio.sleep(pause_s)

    async with asyncio.TaskGroup() as tasks:
        for shard in range(broker.shards):
            tasks.create_task(repeat(shard))
