"""Deletes dead letters that are older than the `max_age` that is written for their dead letter queue.

In small transactions with exact counts, as a purge does. Age is counted by the clock that wrote the time of
death, which is the broker's: a process whose own clock is wrong deletes nothing early.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from weir.broker.broker import Broker
from weir.control.audit_log import AuditedChange, record
from weir.control.database import Database, Row, fetch
from weir.control.scopes import scope_of
from weir.deadletters.copier import SQL
from weir.deadletters.summary import DeadTally, apply_tally
from weir.errors import WeirError
from weir.model.names import QueueRef
from weir.model.shards import shard_of

log = structlog.get_logger(__name__)

BATCH = 1_000
ACTOR = "retention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """A queue whose dead letters are kept for a limited time."""

    consumer_key: int
    queue: QueueRef
    dead_letter_queue: str
    max_age_ms: int


class DeadLetterRetention:
    """Run one in every process; they take different letters."""

    def __init__(self, broker: Broker, database: Database, *, interval_s: float) -> None:
        self._broker = broker
        self._database = database
        self._interval_s = interval_s

    async def run(self) -> None:
        while True:
            try:
                await self.round()
            except WeirError as error:
                log.warning("dead letters that are too old wait to be deleted", error=str(error))
            await asyncio.sleep(self._interval_s)

    async def round(self) -> int:
        """Delete what is too old in every queue; how many letters that were."""
        rows = await self._database.fetch(SQL["limited"])
        return sum([await self._clear(_limited(row)) for row in rows])

    async def _clear(self, limited: Limited) -> int:
        shard = shard_of(limited.queue.scope, shards=self._broker.shards)
        now_ms = await self._broker.now_ms(shard)
        deleted = 0
        while batch := await self._delete(limited, now_ms=now_ms):
            deleted += batch
        if deleted:
            log.info(
                "dead letters were too old and deleted",
                queue=limited.queue.queue,
                dead_letter_queue=limited.dead_letter_queue,
                deleted=deleted,
            )
        return deleted

    async def _delete(self, limited: Limited, *, now_ms: int) -> int:
        """One small transaction: letters, counts and the record of it, all or nothing."""
        async with self._database.transaction() as connection:
            rows = await fetch(
                connection,
                SQL["delete_aged"],
                consumer=limited.consumer_key,
                before_ms=now_ms - limited.max_age_ms,
                limit=BATCH,
            )
            deleted: int = sum(row["letters"] for row in rows)
            if deleted:
                tally = DeadTally()
                tally.consumers[limited.consumer_key] = -deleted
                tally.groups.update({row["group_key"]: -row["letters"] for row in rows})
                await apply_tally(connection, tally, now_ms=now_ms)
                await record(connection, _change(limited, deleted), at_ms=now_ms)
        return deleted


def _limited(row: Row) -> Limited:
    return Limited(
        consumer_key=row["consumer_key"],
        queue=scope_of(row).queue(row["queue"]),
        dead_letter_queue=row["dead_letter_queue"],
        max_age_ms=row["max_age_ms"],
    )


def _change(limited: Limited, deleted: int) -> AuditedChange:
    return AuditedChange.inside(
        limited.queue.scope,
        actor=ACTOR,
        action="dlq.aged",
        target=limited.queue.queue,
        dead_letter_queue=limited.dead_letter_queue,
        max_age_ms=limited.max_age_ms,
        deleted=deleted,
    )
