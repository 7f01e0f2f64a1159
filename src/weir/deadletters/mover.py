"""Carries the unmoved dead of each shard from Redis to PostgreSQL: in batches, once each, losing nothing.

One transaction stores the letters, their groups and the summary, and a checkpoint that names the batch.
Redis drops the batch only afterwards, so that a crash loses nothing. The next mover then drops what the
checkpoint names before it takes more; so a letter that was purged meanwhile does not come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog

from weir.broker.broker import Broker
from weir.control.database import Connection, Database, execute, fetch_one
from weir.deadletters.deaths import KnownDeaths, store_deaths
from weir.deadletters.locks import DeadLetterLock, try_lock
from weir.deadletters.queries import DEAD_LETTERS
from weir.errors import WeirError
from weir.model.backoff import Backoff
from weir.model.clock import Clock, SystemClock
from weir.model.ids import MessageId, new_id
from weir.model.limits import MAX_BATCH

log = structlog.get_logger(__name__)

IDLE_S = 0.2
BACKOFF = Backoff(first_s=0.2, longest_s=5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How many messages a batch took from Redis, and how many of them were new in PostgreSQL."""

    taken: int
    stored: int


NOTHING = Moved(taken=0, stored=0)


class Mover:
    """Run one in every process; a lock lets one at a time work on a shard."""

    def __init__(
        self, broker: Broker, database: Database, *, clock: Clock | None = None, batch: int = MAX_BATCH
    ) -> None:
        self._broker = broker
        self._database = database
        self._clock = clock or SystemClock()
        self._batch = batch
        self._known = KnownDeaths()
        self._dropped: dict[int, UUID] = {}

    async def run(self) -> None:
        """Move for ever; while a store is out of reach, wait and try again."""
        failures = 0
        while True:
            try:
                more = await self.round()
            except WeirError as error:
                failures += 1
                pause_s = BACKOFF.pause_s(failures)
                log.warning("dead letters wait in Redis", error=str(error), retry_in_s=pause_s)
                await asyncio.sleep(pause_s)
                continue
            failures = 0
            if not more:
                await asyncio.sleep(IDLE_S)

    async def round(self) -> bool:
        """Move one batch of every shard; return whether there may be more."""
        more = False
        for shard in range(self._broker.shards):
            # Asks Redis before it begins a transaction, so that an idle mover costs PostgreSQL nothing.
            if await self._broker.take_dead(shard, limit=1):
                moved = await self.move(shard)
                more = more or moved.taken >= self._batch
        return more

    async def move(self, shard: int) -> Moved:
        """Carry one batch of a shard; do nothing while another mover works on it."""
        async with self._database.transaction() as connection:
            if not await try_lock(connection, DeadLetterLock.MOVER, shard):
                return NOTHING
            await self._finish_last(connection, shard)
            messages = await self._broker.take_dead(shard, limit=self._batch)
            if not messages:
                return NOTHING
            now_ms = self._clock.now_ms()
            stored = await store_deaths(connection, messages, self._known, now_ms=now_ms)
            ids = [message.message_id for message in messages]
            batch = await _checkpoint(connection, shard, ids, now_ms=now_ms)
        self._known = stored.known
        await self._broker.drop_dead(shard, ids)
        self._dropped[shard] = batch
        return Moved(taken=len(messages), stored=stored.letters)

    async def _finish_last(self, connection: Connection, shard: int) -> None:
        """Drop what the last mover of this shard stored, in case it was killed before it could."""
        row = await fetch_one(
            connection, DEAD_LETTERS["last_batch"], shard=shard, known=self._dropped.get(shard)
        )
        if row is not None:
            await self._broker.drop_dead(shard, [MessageId(str(one)) for one in row["message_ids"]])
            self._dropped[shard] = row["batch"]


async def _checkpoint(connection: Connection, shard: int, ids: Sequence[MessageId], *, now_ms: int) -> UUID:
    batch = UUID(new_id())
    await execute(
        connection, DEAD_LETTERS["save_batch"], shard=shard, batch=batch, ids=list(ids), now_ms=now_ms
    )
    return batch
