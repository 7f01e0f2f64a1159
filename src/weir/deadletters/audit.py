"""Recounts dead letters, repairs the summary and publishes the drift, which must be 0.

One audit per installation works at a time, at most once per interval. A run takes the consumers that were
checked longest ago, up to a bound of letters, so its cost does not grow with the table. The count and the
summary are read in one snapshot and a repair adds the difference, so deaths go on during an audit.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from weir.control.database import Connection, Database, Row, execute, fetch, fetch_one
from weir.control.old_rows import delete_old
from weir.deadletters.locks import DeadLetterLock, try_lock
from weir.deadletters.loops import repeat
from weir.deadletters.queries import COUNTS
from weir.deadletters.summary import DeadTally, apply_tally, bootstrap
from weir.model.clock import Clock, SystemClock
from weir.model.durations import DAY_MS

log = structlog.get_logger(__name__)

DEFAULT_INTERVAL_MS = 600_000
DEFAULT_MAX_LETTERS = 5_000_000
"""Letters that a run counts at most; a consumer with more is counted alone."""
DEFAULT_KEEP_REPLAYED_MS = 30 * DAY_MS
FORGET_BATCH = 1_000
LOOK_S = 15.0
COUNTING_S = 600.0
"""How long PostgreSQL may take to count one consumer's letters, which may be millions."""
AUDITING_S = 3_600.0
"""How long the transaction that holds the lock may be idle, while others count all consumers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The result of an audit. `drift` is the sum of the differences that it repaired, without signs."""

    started_at_ms: int
    finished_at_ms: int
    consumers: int
    letters: int
    drift: int


class DeadLetterAuditor:
    """Run one in every process; the lock and the interval let one of them work at a time."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock | None = None,
        interval_ms: int = DEFAULT_INTERVAL_MS,
        max_letters: int = DEFAULT_MAX_LETTERS,
        keep_replayed_ms: int = DEFAULT_KEEP_REPLAYED_MS,
        counting_s: float = COUNTING_S,
    ) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._interval_ms = interval_ms
        self._max_letters = max_letters
        self._keep_replayed_ms = keep_replayed_ms
        self._counting_s = counting_s

    async def run(self) -> None:
        """Audit for ever; most looks find that the interval is not over."""
        interval_s = self._interval_ms / 1000
        await repeat(self._audit_and_forget, idle_s=min(LOOK_S, interval_s), waits="audits of dead letters")

    async def _audit_and_forget(self) -> None:
        audit = await self.audit()
        if audit is not None:
            log.info("dead letters audited", consumers=audit.consumers, drift=audit.drift)
            await self.forget_replayed()

    async def audit(self, *, force: bool = False) -> Audit | None:
        """Check the consumers that are due; None while another audit works or the interval is not over."""
        async with self._database.transaction(idle_s=AUDITING_S) as guard:
            if not await try_lock(guard, DeadLetterLock.AUDIT):
                return None
            last = await fetch_one(guard, COUNTS["last_audit"])
            age_ms = self._clock.now_ms() - (0 if last is None else last["started_at_ms"])
            if age_ms < self._interval_ms and not force:
                return None
            audit = await self._check_due(everything=force)
            await _save(guard, audit)
        return audit

    async def _check_due(self, *, everything: bool) -> Audit:
        """Check consumer by consumer, each in a transaction of its own, so that none is locked for long."""
        started_at_ms = self._clock.now_ms()
        async with self._database.transaction(answer_s=self._counting_s) as connection:
            await bootstrap(connection, now_ms=started_at_ms)
        due = await self._find_due(everything=everything)
        found = [await self._check(key) for key in due]
        return Audit(
            started_at_ms=started_at_ms,
            finished_at_ms=self._clock.now_ms(),
            consumers=len(due),
            letters=sum(one.letters for one in found),
            drift=sum(one.drift for one in found),
        )

    async def _check(self, key: int) -> AuditFinding:
        async with self._database.transaction(answer_s=self._counting_s) as connection:
            await execute(connection, COUNTS["use_one_core"])
            return await check_consumer(connection, key, now_ms=self._clock.now_ms())

    async def _find_due(self, *, everything: bool) -> list[int]:
        """The consumers that were checked longest ago, as many as the bound of letters allows."""
        due: list[int] = []
        letters = 0
        for row in await self._database.fetch(COUNTS["oldest_checked"]):
            if due and not everything and letters + row["dead_count"] > self._max_letters:
                break
            due.append(row["consumer_key"])
            letters += row["dead_count"]
        return due

    async def forget_replayed(self) -> None:
        """Delete replayed letters that are older than the retention, in small transactions."""
        before_ms = self._clock.now_ms() - self._keep_replayed_ms
        await delete_old(self._database, COUNTS["forget_replayed"], limit=FORGET_BATCH, before_ms=before_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """The letters of one consumer, and by how many its counts were wrong."""

    letters: int
    drift: int


async def last_audit(database: Database) -> Audit | None:
    """The latest audit, whose drift is published."""
    row = await database.fetch_one(COUNTS["last_audit"])
    return None if row is None else Audit(**{name: value for name, value in row.items() if name != "id"})


async def check_consumer(connection: Connection, key: int, *, now_ms: int) -> AuditFinding:
    """Compare one consumer's counts with its letters in one snapshot, and repair by the difference."""
    counted = await fetch_one(connection, COUNTS["recount_consumer"], key=key)
    groups = await fetch(connection, COUNTS["recount_groups"], key=key)
    if counted is None:
        return AuditFinding(letters=0, drift=0)
    tally = DeadTally()
    tally.consumers[key] = counted["counted"] - counted["dead_count"]
    for row in groups:
        tally.groups[row["group_key"]] = row["counted"] - row["dead_count"]
    drift = _drift(counted, groups)
    if drift:
        log.error("the dead-letter summary had drifted and was repaired", consumer=key, drift=drift)
        await apply_tally(connection, tally, now_ms=now_ms)
    await execute(connection, COUNTS["mark_checked"], key=key, now_ms=now_ms)
    return AuditFinding(letters=counted["counted"], drift=drift)


def _drift(counted: Row, groups: list[Row]) -> int:
    return sum(abs(row["counted"] - row["dead_count"]) for row in (counted, *groups))


async def _save(connection: Connection, audit: Audit) -> None:
    await execute(
        connection,
        COUNTS["save_audit"],
        started_at_ms=audit.started_at_ms,
        finished_at_ms=audit.finished_at_ms,
        consumers=audit.consumers,
        letters=audit.letters,
        drift=audit.drift,
    )
    await execute(connection, COUNTS["trim_audits"])
