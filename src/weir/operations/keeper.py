"""Who may write to the broker directly, and until when: the keeper of gates and leases.

An operation that was queued while the broker was out of reach stands behind a gate that nobody could
close. Until a keeper has closed it, no process may write directly to that shard. So direct writing is
allowed by lease: a keeper grants it in PostgreSQL, where the same row counts the operations whose gates
are open, and then in the broker, in absolute time of the broker's own clock that was read *before* the
grant. The broker's lease has therefore lapsed when PostgreSQL says that it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence

from weir.broker.broker import Broker, Gated
from weir.control.database import Database, Row, execute, fetch
from weir.errors import BrokerUnavailable, WeirError
from weir.model.names import QueueRef
from weir.operations.queue import QUERIES, queue_of
from weir.operations.reach import Reach

log = logging.getLogger(__name__)

LEASE_MS = 2_000
_BATCH = 1_000


class Keeper:
    """Renews the direct lease of every shard, after closing the gates that are still open."""

    def __init__(
        self,
        *,
        database: Database,
        broker: Broker,
        reach: Reach,
        lease_ms: int = LEASE_MS,
    ) -> None:
        self._database = database
        self._broker = broker
        self._reach = reach
        self._lease_ms = lease_ms
        self._every_s = lease_ms / 4_000
        self._granted: dict[int, int] = {}

    async def run(self) -> None:
        while True:
            await self.round()
            await asyncio.sleep(self._every_s)

    async def round(self) -> None:
        """One renewal of all shards that can be reached."""
        clocks = await self._clocks()
        if not clocks:
            return
        try:
            granted = await self._grant(list(clocks))
        except BrokerUnavailable:
            return
        except WeirError as error:
            log.warning("the direct lease is extended without PostgreSQL: %s", error)
            granted = [shard for shard, now_ms in clocks.items() if self._granted.get(shard, 0) > now_ms]
        await self._allow({shard: clocks[shard] + self._lease_ms for shard in granted})

    async def _clocks(self) -> dict[int, int]:
        """The broker's clock in each shard that answers."""
        shards = range(self._broker.shards)
        answers = await asyncio.gather(*map(self._broker.now_ms, shards), return_exceptions=True)
        clocks: dict[int, int] = {}
        for shard, answer in zip(shards, answers, strict=True):
            if isinstance(answer, int):
                clocks[shard] = answer
                self._reach.regained(shard)
            elif isinstance(answer, WeirError):
                self._reach.lost(shard)
            else:
                raise answer
        return clocks

    async def _grant(self, shards: list[int]) -> list[int]:
        while await self._close_open_gates(shards) == _BATCH:
            pass
        rows = await self._database.fetch(QUERIES["grant_direct"], shards=shards, lease_ms=self._lease_ms)
        return [row["shard"] for row in rows]

    async def _close_open_gates(self, shards: list[int]) -> int:
        async with self._database.transaction() as connection:
            await fetch(connection, QUERIES["bound_keeper"])
            rows = await fetch(connection, QUERIES["ungated_operations"], shards=shards, limit=_BATCH)
            if rows:
                await self._close(rows)
                await execute(connection, QUERIES["mark_gated"], id=[row["id"] for row in rows])
        return len(rows)

    async def _close(self, rows: Sequence[Row]) -> None:
        gates: dict[QueueRef, list[Gated]] = defaultdict(list)
        for row in rows:
            gates[queue_of(row)].append(Gated(key=row["partition"], operation=str(row["id"])))
        for queue, closing in gates.items():
            await self._broker.close_gates(queue, closing)

    async def _allow(self, until: dict[int, int]) -> None:
        for shard, until_ms in until.items():
            try:
                await self._broker.allow_direct(shard, until_ms=until_ms)
            except BrokerUnavailable:
                self._reach.lost(shard)
            else:
                self._granted[shard] = until_ms
