"""Gates whose operation is not in PostgreSQL: left by a process that died between the two stores.

Such a gate sends producers to the operation queue, and what it announced takes room in its queue, for ever.
So every process looks through the gates that have been closed for a while, by the broker's clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict

from weir.broker.broker import Broker, Gated
from weir.errors import WeirError
from weir.model.names import QueueRef
from weir.operations.queue import OperationQueue

log = logging.getLogger(__name__)

ORPHAN_MS = 30_000
"""An operation is written right after its gate was closed, and its caller waits 8 s for that at most."""
EVERY_S = 10.0
PAGE = 500
"""Gates that one round looks at per shard; the next round goes on behind them."""


class OrphanGates:
    """Opens gates that nobody will open."""

    def __init__(
        self, *, queue: OperationQueue, broker: Broker, older_ms: int = ORPHAN_MS, page: int = PAGE
    ) -> None:
        self._queue = queue
        self._broker = broker
        self._older_ms = older_ms
        self._page = page
        self._skip: dict[int, int] = defaultdict(int)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.sweep()
            except WeirError as error:
                log.debug("gates are not looked through for now: %s", error)

    async def sweep(self) -> int:
        """Look at a page of every shard; how many gates were opened."""
        return sum([await self._sweep(shard) for shard in range(self._broker.shards)])

    async def _sweep(self, shard: int) -> int:
        page = await self._broker.stale_gates(
            shard, older_ms=self._older_ms, skip=self._skip[shard], limit=self._page
        )
        if not page:
            self._skip[shard] = 0
            return 0
        alive = await self._queue.unfinished([gate.operation for _, gate in page])
        orphans: dict[QueueRef, list[Gated]] = defaultdict(list)
        for queue, gate in page:
            if gate.operation not in alive:
                orphans[queue].append(gate)
        for queue, gates in orphans.items():
            log.warning("opening %d gates of `%s` that nobody holds any more", len(gates), queue.queue)
            await self._broker.open_gates(queue, gates)
        self._skip[shard] = 0 if len(page) < self._page else self._skip[shard] + len(alive)
        return len(page) - len(alive)
