"""Deletes dead letters that are older than the `max_age` that is written for their dead letter queue.

It works in small transactions with exact counts, as a purge does. Age is measured by the broker's clock,
which wrote the time of death, so that a process with a wrong clock deletes nothing early.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import structlog

from weir.broker.broker import Broker
from weir.control.audit_log import AuditedChange, record
from weir.control.database import Database, Row, fetch
from weir.control.scopes import scope_of
from weir.deadletters.loops import repeat
from weir.deadletters.queries import DEAD_LETTER_QUEUES
from weir.deadletters.summary import count_gone
from weir.errors import ControlUnavailable
from weir.model.names import QueueRef
from weir.model.shards import shard_of

log = structlog.get_logger(__name__)

BATCH = 1_000
"""Letters per transaction. Their groups and consumer are locked until it ends."""
ACTOR = "retention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """A queue whose dead letters are kept for a limited time."""

    consumer_key: int
    queue: QueueRef
    dead_letter_queue: str
    max_age_ms: int


class DeadLetterRetention:
    """Run one in every process; each takes other letters, because it skips locked ones."""

    def __init__(self, broker: Broker, database: Database, *, interval_s: float) -> None:
        self._broker = broker
        self._database = database
        self._interval_s = interval_s

    async def run(self) -> None:
        """Delete for ever, once per interval."""

        async def step() -> None:
            await self.run_round()

        await repeat(step, idle_s=self._interval_s, waits="dead letters that are too old")

    async def run_round(self) -> int:
        """Delete the letters that are too old in every queue; return how many.

        Queues take turns by batches. A queue that fails is left to the next round.
        """
        left = [_limited(row) for row in await self._database.fetch(DEAD_LETTER_QUEUES["limited"])]
        deleted: Counter[Limited] = Counter()
        while left:
            left = [limited for limited in left if await self._delete_some(limited, deleted)]
        for limited, count in deleted.items():
            log.info(
                "dead letters were too old and deleted",
                queue=limited.queue.queue,
                dead_letter_queue=limited.dead_letter_queue,
                deleted=count,
            )
        return deleted.total()

    async def _delete_some(self, limited: Limited, deleted: Counter[Limited]) -> bool:
        """Delete one batch of a queue; return whether there may be more."""
        try:
            shard = shard_of(limited.queue.scope, shards=self._broker.shards)
            batch = await self._delete(limited, now_ms=await self._broker.now_ms(shard))
        except ControlUnavailable:
            raise
        except Exception as error:
            log.warning("dead letters are not deleted", queue=limited.queue.queue, error=str(error))
            return False
        if batch:
            deleted[limited] += batch
        return batch > 0

    async def _delete(self, limited: Limited, *, now_ms: int) -> int:
        """Delete one batch of letters, change the counts and record it, in one transaction."""
        async with self._database.transaction() as connection:
            rows = await fetch(
                connection,
                DEAD_LETTER_QUEUES["delete_aged"],
                consumer=limited.consumer_key,
                before_ms=now_ms - limited.max_age_ms,
                limit=BATCH,
            )
            deleted = await count_gone(connection, rows, now_ms=now_ms)
            if deleted:
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
