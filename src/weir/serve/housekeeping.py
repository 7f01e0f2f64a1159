"""Work that a broker needs at intervals: sweeps, and heartbeats of queues that nobody touches."""

from __future__ import annotations

import asyncio

from weir.broker.broker import HEARTBEAT_MS, Broker

SWEEP_S = 0.5


class Sweeper:
    """Returns messages of lapsed leases and expires old messages, in every shard.

    Any number of processes may do so at once.
    """

    def __init__(self, broker: Broker, *, every_s: float = SWEEP_S) -> None:
        self._broker = broker
        self._every_s = every_s

    async def run(self) -> None:
        while True:
            await self.sweep_all()
            await asyncio.sleep(self._every_s)

    async def sweep_all(self) -> None:
        for shard in range(self._broker.shards):
            while (await self._broker.sweep(shard)).more:
                pass


class Heart:
    """Emits an event for each queue that nobody touches, so that charts show it as stuck and not as gone."""

    def __init__(self, broker: Broker, *, every_s: float = HEARTBEAT_MS / 1_000) -> None:
        self._broker = broker
        self._every_s = every_s

    async def run(self) -> None:
        while True:
            for shard in range(self._broker.shards):
                await self._broker.heartbeat(shard)
            await asyncio.sleep(self._every_s)
