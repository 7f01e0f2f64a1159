"""Cleaning up after the operation queue: finished operations, orphan gates and idle calls."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

import structlog

from weir.broker.broker import Broker, Gated
from weir.control.database import Database
from weir.control.old_rows import delete_old
from weir.errors import WeirError
from weir.model.durations import DAY_MS, HOUR_MS
from weir.model.names import QueueRef
from weir.operations.queue import OperationQueue
from weir.operations.store import QUERIES

log = structlog.get_logger(__name__)

ORPHAN_MS = 30_000
"""A gate without an operation is an orphan after this long. An operation is written right after its gate was
closed, and its caller waits 8 s for that at most."""
ORPHANS_EVERY_S = 10.0
ORPHANS_PAGE = 500
"""Gates that one round looks at per shard; the next round goes on behind them."""
IDLE_MS = HOUR_MS
"""A call slot is idle after this long without a call. Bytes of a call that was given up may be on their way
for as long as TCP tries to deliver them, about a quarter of an hour. Until then the slot must know that they
are late."""
CALLS_EVERY_S = 60.0


class Cleaner:
    """Forgets finished operations: completed and cancelled ones after an hour, failed ones after a week."""

    def __init__(
        self,
        *,
        database: Database,
        queue: OperationQueue,
        done_ms: int = HOUR_MS,
        failed_ms: int = 7 * DAY_MS,
        every_s: float = 60.0,
        batch: int = 5_000,
    ) -> None:
        self._database = database
        self._queue = queue
        self._ages = {"done_ms": done_ms, "failed_ms": failed_ms}
        self._every_s = every_s
        self._batch = batch

    async def run(self) -> None:
        while True:
            try:
                await self.clean()
            except WeirError as error:
                log.warning("finished operations are not cleaned up for now", error=str(error))
            await asyncio.sleep(self._every_s)

    async def clean(self) -> int:
        """Delete operations that are old enough, in small transactions; return how many."""
        deleted = await delete_old(
            self._database, QUERIES["clean_operations"], limit=self._batch, **self._ages
        )
        await delete_old(self._database, QUERIES["clean_partitions"])
        await self._queue.forget_rates()
        return deleted


class OrphanGates:
    """Opens gates whose operation is not in PostgreSQL: left by a process that died between the two stores.

    Such a gate would send producers to the operation queue for ever, and its messages would take room in
    their queue. So every process looks through the gates that have been closed for a while, by the broker's
    clock.
    """

    def __init__(
        self, *, queue: OperationQueue, broker: Broker, older_ms: int = ORPHAN_MS, page: int = ORPHANS_PAGE
    ) -> None:
        self._queue = queue
        self._broker = broker
        self._older_ms = older_ms
        self._page = page
        self._skip: dict[int, int] = defaultdict(int)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(ORPHANS_EVERY_S)
            try:
                await self.sweep()
            except WeirError as error:
                log.debug("gates are not looked through for now", error=str(error))

    async def sweep(self) -> int:
        """Look at a page of every shard; return how many gates were opened."""
        return await _sum_over_shards(self._broker, self._sweep)

    async def _sweep(self, shard: int) -> int:
        page = await self._broker.stale_gates(
            shard, older_ms=self._older_ms, skip=self._skip[shard], limit=self._page
        )
        if not page:
            self._skip[shard] = 0
            return 0
        alive = await self._queue.find_unfinished([gate.operation for _, gate in page])
        orphans: dict[QueueRef, list[Gated]] = defaultdict(list)
        for queue, gate in page:
            if gate.operation not in alive:
                orphans[queue].append(gate)
        for queue, gates in orphans.items():
            first = gates[0].operation
            log.warning(
                "opening gates that nobody holds any more", queue=queue.queue, gates=len(gates), first=first
            )
            try:
                await self._broker.open_gates(queue, gates)
            except WeirError as error:
                log.warning("gates of a queue stay closed for now", queue=queue.queue, error=str(error))
        self._skip[shard] = 0 if len(page) < self._page else self._skip[shard] + len(alive)
        return len(page) - len(alive)


class IdleCalls:
    """Lets the broker forget the call slots of processes that ended, and of a load that is over.

    A slot is kept as long as an operation in PostgreSQL will ask about its call, however long that takes.
    """

    def __init__(self, *, queue: OperationQueue, broker: Broker, idle_ms: int = IDLE_MS) -> None:
        self._queue = queue
        self._broker = broker
        self._idle_ms = idle_ms

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CALLS_EVERY_S)
            try:
                await self.forget()
            except WeirError as error:
                log.debug("idle call slots are not forgotten for now", error=str(error))

    async def forget(self) -> int:
        """Forget slots that nobody can ask about any more; return how many."""
        return await _sum_over_shards(self._broker, self._forget)

    async def _forget(self, shard: int) -> int:
        idle = await self._broker.idle_calls(shard, idle_ms=self._idle_ms)
        if not idle:
            return 0
        needed = await self._queue.find_asked_about(idle)
        slots = [slot for slot in idle if slot not in needed]
        return await self._broker.forget_calls(shard, slots, idle_ms=self._idle_ms)


async def _sum_over_shards(broker: Broker, work: Callable[[int], Awaitable[int]]) -> int:
    """Do the same in every shard. One that is away keeps no other from it; its error is raised at the end."""
    total, away = 0, None
    for shard in range(broker.shards):
        try:
            total += await work(shard)
        except WeirError as error:
            away = error
    if away is not None:
        raise away
    return total
