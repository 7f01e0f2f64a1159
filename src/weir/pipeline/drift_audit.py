"""Compares odometers, tiers and live queues. An unexplained difference is drift, and drift must be 0.

A queue's counts must add up to its odometers. The first event after a recorded gap tells exactly what the
queue lost in the gap, so that loss is recorded and explained. Every other difference is drift.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from weir.model.durations import DAY_MS, HOUR_MS, SECOND_MS
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.pipeline.drift_findings import Findings, Live, ahead_of
from weir.pipeline.gap_losses import gaps_by_shard, losses_in_gaps
from weir.pipeline.leases import LEASE_S, Prolong, held_lease
from weir.pipeline.quiet import Pause, run_between_batches, wait_for_landing
from weir.pipeline.switch_gaps import record_switch_gaps
from weir.telemetry.events import LIFE, QUEUE_COUNTERS
from weir.telemetry.store import StreamStore
from weir.warehouse.audit_history import AuditHistory, AuditRecord
from weir.warehouse.audit_reader import AuditReader, Counts, GapReport, TierSums
from weir.warehouse.audit_snapshot import AuditSnapshot, audit_snapshot, copy_of
from weir.warehouse.connection import ClickHouseConnection

AUDIT_LEASE = "audit"
# A batch that began just before the pause may be noted only after it; the next attempt sees it.
ATTEMPTS = 3
RETRY_BELOW_S = 0.3
BATCH_WAIT_S = 10.0
MAX_GAPS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    drift: int | None
    """The sum of all unexplained differences over queues, counters and tiers; None if not `complete`."""
    complete: bool
    """Everything in the streams had landed, and everything was compared."""
    reason: str
    """Why the audit is incomplete."""
    number: int
    started_ms: int
    held_ms: int
    """For how long the pipeline was paused."""
    queues: int | None
    """None if the audit is incomplete; so are the next four."""
    events: int | None
    ledger_drift: int | None
    """Odometer - counted - lost in gaps, over all queues and counters."""
    tier_drift: int | None
    live_drift: int | None
    """Live odometers that are ahead although everything has landed."""
    drifting: Sequence[Mapping[str, Any]]
    """The worst queues and environments."""
    lost: Mapping[str, int]
    """Losses in recorded gaps, by counter."""
    gaps: Sequence[GapReport]
    rejects: Sequence[Mapping[str, Any]]
    tiers: Sequence[TierSums]
    lives: int = 0
    """Lives that have landed."""
    life_drift: int = 0
    """How much of `ledger_drift` are lives: odometer - landed - lost in gaps, over all queues."""

    def as_json(self) -> str:
        return json.dumps(asdict(self))


class PipelineAuditor:
    """Compares the stores; the pipeline pauses only while the tables are copied."""

    def __init__(
        self,
        store: StreamStore,
        connection: ClickHouseConnection,
        *,
        metrics: Sequence[str],
        shards: int,
        fine_days: int = 2,
    ) -> None:
        self._store = store
        self._connection = connection
        self._landed = AuditReader(connection)
        self._reader = AuditReader(connection, table=copy_of)
        self._history = AuditHistory(connection)
        self._metrics = metrics
        self._shards = shards
        # Two hours less than the finest tier keeps: whole hours are compared, and none may have begun to
        # expire.
        self._kept_ms = fine_days * DAY_MS - 2 * HOUR_MS

    def environments(self) -> list[EnvironmentRef]:
        """The environments in the ledger, whose live odometers the caller reads."""
        return self._landed.environments()

    def keep_ahead(self, live: Live) -> dict[QueueRef, Counts]:
        """The live odometers that are ahead of the landed ones; the others need no comparison."""
        landed = self._landed.odometers(sorted({queue.scope for queue in live}))
        return {queue: live[queue] for queue in ahead_of(landed, live)}

    def audit(self, live: Live, *, wait_s: float = 30, problem: str = "") -> AuditReport:
        """Audit everything. `live` was read before this call, so everything that it counts must land.

        `problem` says why `live` is incomplete; it is empty if `live` is complete.
        """
        # First everything must land; a pause before that would keep the events in the streams.
        if not wait_for_landing(self._store, metrics=self._metrics, shards=self._shards, wait_s=wait_s):
            problem = f"not everything has landed after {wait_s:.0f} s"
        refusal = (
            f"another audit of the pipeline is at work, or was killed in the last {LEASE_S:.0f} s; "
            "try again when it is done"
        )
        with held_lease(self._store, AUDIT_LEASE, seconds=LEASE_S, wait_s=wait_s, refusal=refusal) as prolong:
            started_ms, began = time.time_ns() // 1_000_000, time.monotonic()
            with audit_snapshot(self._connection) as snapshot:
                pause = self._copy(snapshot, prolong)
                findings = Findings() if pause.problem else self._compare({} if problem else live, prolong)
                # Raises if the lease was lost: another audit would then have replaced the copies.
                prolong()
            problem = pause.problem or problem
            record = AuditRecord(
                number=self._history.next_number(),
                started_ms=started_ms,
                drift=None if problem else findings.drift,
                reason=problem,
                held_ms=round(pause.held_s * 1_000),
                took_ms=round((time.monotonic() - began) * 1_000),
                **findings.sums,
            )
            if not problem:
                # Queues before the record: a reader who finds the audit in the history must find its queues.
                self._history.record_drift(record, findings.by_queue(), findings.by_environment())
            self._history.record(record)
        return self._report(record, findings)

    def _copy(self, snapshot: AuditSnapshot, prolong: Prolong) -> Pause:
        for _ in range(ATTEMPTS):
            prolong()
            pause = run_between_batches(self._store, snapshot.take, wait_s=BATCH_WAIT_S)
            # Where copying is slow, another attempt would hold the pipeline up once more for nothing.
            if not pause.problem or pause.held_s > RETRY_BELOW_S:
                break
            snapshot.clear()
        return pause

    def _compare(self, live: Live, prolong: Prolong) -> Findings:
        """Compare the copies. Losses are recorded first, so that they count as explained."""
        self._record_switches()
        gaps = self._landed.gaps(limit=MAX_GAPS)
        prolong()
        self._explain(gaps)
        prolong()
        start_ms = self._reader.now_s() * SECOND_MS - self._kept_ms
        start_s = start_ms // HOUR_MS * HOUR_MS // SECOND_MS
        queue_tiers = self._reader.queue_tier_drift(start_s=start_s)
        prolong()
        environment_tiers = self._reader.environment_tier_drift(start_s=start_s)
        prolong()
        totals, accounts = self._reader.totals(), self._reader.disagreeing()
        unseen = self._unexplained(live, gaps)
        return Findings(
            accounts=accounts,
            queue_tiers=queue_tiers,
            environment_tiers=environment_tiers,
            unseen=unseen,
            last_ms={
                **self._newest({**queue_tiers, **unseen}),
                **{account.queue: account.last_ms for account in accounts},
            },
            queues=totals["queues"],
            events=totals["events"],
            lives=self._reader.lives(),
            life_drift=self._unexplained_lives(gaps),
            tiers=self._reader.tier_sums(start_s=start_s),
        )

    def _record_switches(self) -> None:
        """Record the spans in which metrics were off, so that their losses count as explained."""
        switches = self._store.read_switches(shards=self._shards)
        record_switch_gaps(self._connection, switches, metrics=self._metrics)

    def _explain(self, gaps: Sequence[GapReport]) -> None:
        """Record, once per queue and gap, what each queue lost in the gaps before its newest event."""
        # The loss of an open gap is known only when the gap ends.
        by_shard = gaps_by_shard([gap for gap in gaps if not gap.open])
        if not by_shard:
            return
        queues = self._reader.queues_after_gaps([gap for mine in by_shard.values() for gap in mine])
        losses = [
            (queue.queue, queue.shard, gap.from_id, lost)
            for queue, gap, lost in losses_in_gaps(queues, by_shard)
        ]
        if losses:
            self._landed.attribute(losses, token=_token_of(losses))

    def _unexplained_lives(self, gaps: Sequence[GapReport]) -> dict[QueueRef, int]:
        """The drift of lives by queue that no gap explains; each gap explains once per queue."""
        by_shard = gaps_by_shard([gap for gap in gaps if not gap.open], metric=LIFE.name)
        accounts = self._reader.life_accounts()
        found = losses_in_gaps(accounts, by_shard)
        losses = [(account.queue, account.shard, gap.from_id, lost) for account, gap, lost in found]
        if losses:
            self._landed.attribute_lives(losses, token=_token_of(losses))
        explained = {queue: lost[0] for queue, _, _, lost in losses}
        left = {account.queue: account.drift[0] - explained.get(account.queue, 0) for account in accounts}
        return {queue: drift for queue, drift in left.items() if drift}

    def _unexplained(self, live: Live, gaps: Sequence[GapReport]) -> dict[QueueRef, Counts]:
        """Live odometers that are ahead although everything landed, and that no later gap explains."""
        latest = {shard: max(gap.to_ms for gap in mine) for shard, mine in gaps_by_shard(gaps).items()}
        landed = self._reader.odometers(sorted({queue.scope for queue in live}))
        found = {}
        for queue, ahead in ahead_of(landed, live).items():
            last_ms, _ = landed.get(queue, (0, ()))
            gap_ms = latest.get(shard_of(queue.scope, shards=self._shards))
            if gap_ms is None or last_ms >= gap_ms:
                found[queue] = ahead
        return found

    def _newest(self, queues: Iterable[QueueRef]) -> dict[QueueRef, int]:
        landed = self._reader.odometers(sorted({queue.scope for queue in queues}))
        return {queue: last_ms for queue, (last_ms, _) in landed.items()}

    def _report(self, record: AuditRecord, findings: Findings) -> AuditReport:
        gaps = self._landed.gaps()
        sums: Mapping[str, int | None] = findings.sums
        if record.drift is None:
            sums = dict.fromkeys(sums)
        return AuditReport(
            drift=record.drift,
            complete=record.drift is not None,
            reason=record.reason,
            number=record.number,
            started_ms=record.started_ms,
            held_ms=record.held_ms,
            drifting=findings.worst(),
            lost={name: sum(gap.lost.get(name, 0) for gap in gaps) for name in QUEUE_COUNTERS},
            gaps=gaps,
            rejects=self._landed.rejects(),
            tiers=findings.tiers,
            lives=findings.lives,
            life_drift=findings.missing_lives,
            **sums,
        )


def _token_of(losses: Sequence[tuple[QueueRef, int, str, Counts]]) -> str:
    text = json.dumps([[asdict(queue), shard, gap, lost] for queue, shard, gap, lost in losses])
    return f"losses-{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"
