"""Compares odometers, tiers and live queues. An unexplained difference is drift, and drift must be 0.

A queue's counts must add up to its odometers. The first event after a recorded gap tells exactly what the
queue lost in the gap, so that loss is recorded and explained. Every other difference is drift.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.pipeline.gap_losses import gaps_by_shard, losses_in_gaps
from weir.pipeline.quiet import quiet, wait_for_landing
from weir.pipeline.switch_gaps import record_switch_gaps
from weir.telemetry.events import QUEUE_COUNTERS
from weir.telemetry.store import StreamStore
from weir.warehouse.audit_history import AuditHistory, AuditRecord, QueueDrift
from weir.warehouse.audit_reader import AuditReader, Counts, DriftingQueue, GapReport, TierSums, named
from weir.warehouse.connection import ClickHouseConnection

HOUR_S = 3_600
DAY_S = 24 * HOUR_S

Live = Mapping[QueueRef, Counts]
"""The odometers of queues in Redis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    drift: int
    """The sum of all unexplained differences, over queues, counters and tiers."""
    queues: int
    events: int
    complete: bool
    """Everything in the streams had landed, and no batch was running."""
    lost: Mapping[str, int]
    """Losses in recorded gaps, by counter."""
    gaps: Sequence[GapReport]
    rejects: Sequence[Mapping[str, Any]]
    tiers: Sequence[TierSums]
    tier_drift: int
    queue_drift: Sequence[Mapping[str, Any]]
    live_drift: Sequence[Mapping[str, Any]]

    def as_json(self) -> str:
        return json.dumps(asdict(self))


class PipelineAuditor:
    """Compares the stores while the pipeline pauses."""

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
        self._reader = AuditReader(connection)
        self._history = AuditHistory(connection)
        self._metrics = metrics
        self._shards = shards
        # Two hours less than the finest tier keeps: whole hours are compared, and none may have begun to
        # expire.
        self._kept_s = fine_days * DAY_S - 2 * HOUR_S

    def environments(self) -> list[EnvironmentRef]:
        """The environments in the ledger, whose live odometers the caller reads."""
        return self._reader.environments()

    def audit(self, live: Live, *, wait_s: float = 30) -> AuditReport:
        """Audit everything. `live` was read before this call, so everything that it counts must land."""
        began_ms = time.time_ns() // 1_000_000
        # First everything must land; a pause before that would keep the events in the streams.
        landed = wait_for_landing(self._store, metrics=self._metrics, shards=self._shards, wait_s=wait_s)
        with quiet(self._store) as still:
            behind = self._behind(live) if landed else {}
            if still:
                # Record losses before the report, so that it shows them as explained.
                self._record_switches()
                self._explain()
            report, drifting = self._report(behind if landed else {}, complete=landed and still)
        if report.complete:
            self._remember(report, drifting, began_ms=began_ms)
        return report

    def _report(self, behind: Live, *, complete: bool) -> tuple[AuditReport, list[QueueDrift]]:
        start_s = (int(time.time()) - self._kept_s) // HOUR_S * HOUR_S
        tiers = self._reader.tier_sums(start_s=start_s)
        differences = self._reader.tier_differences(start_s=start_s)
        gaps, totals = self._reader.gaps(), self._reader.totals()
        accounts = self._reader.disagreeing()
        unseen = self._unexplained(behind, gaps)
        tier_drift = _tier_drift(tiers) + len(differences)
        report = AuditReport(
            drift=sum(_size(account.drift) for account in accounts)
            + tier_drift
            + sum(map(_size, unseen.values())),
            queues=totals["queues"],
            events=totals["events"],
            complete=complete,
            lost=_sum_of_losses(gaps),
            gaps=gaps,
            rejects=self._reader.rejects(),
            tiers=tiers,
            tier_drift=tier_drift,
            queue_drift=[_shown(account.queue, account.drift) for account in accounts[:100]],
            live_drift=[_shown(queue, counts) for queue, counts in list(unseen.items())[:100]],
        )
        return report, _drifting(accounts, unseen)

    def _remember(self, report: AuditReport, drifting: Sequence[QueueDrift], *, began_ms: int) -> None:
        """Add the audit to the history, and note the drift of each queue for later gaps."""
        record = AuditRecord(
            number=self._history.next_number(),
            started_ms=began_ms,
            drift=report.drift,
            reason="",
            ledger_drift=sum(_size(one.ledger_drift) for one in drifting),
            tier_drift=report.tier_drift,
            live_drift=sum(one.live_drift for one in drifting),
            queues=report.queues,
            events=report.events,
            held_ms=0,
            took_ms=time.time_ns() // 1_000_000 - began_ms,
        )
        self._history.record_drift(record, drifting)
        self._history.record(record)

    def _behind(self, live: Live) -> dict[QueueRef, Counts]:
        """How far each live odometer is ahead of the landed one."""
        found: dict[QueueRef, Counts] = {}
        for environment in {queue.scope for queue in live}:
            known = self._reader.odometers(environment)
            for queue, totals in live.items():
                if queue.scope == environment:
                    _, landed = known.get(queue.queue, (0, (0,) * len(QUEUE_COUNTERS)))
                    ahead = tuple(max(now - then, 0) for now, then in zip(totals, landed, strict=True))
                    if any(ahead):
                        found[queue] = ahead
        return found

    def _record_switches(self) -> None:
        """Record the spans in which metrics were off, whose losses are explained like those of any gap."""
        switches = self._store.read_switches(shards=self._shards)
        record_switch_gaps(self._connection, switches, metrics=self._metrics)

    def _explain(self) -> None:
        """Record, once per queue and gap, what each queue lost in the gaps before its newest event."""
        # What is lost in an open gap is known when it ends.
        gaps = gaps_by_shard([gap for gap in self._reader.gaps(limit=1_000) if not gap.open])
        if not gaps:
            return
        queues = self._reader.queues_after_gaps([gap for mine in gaps.values() for gap in mine])
        losses = [
            (queue.queue, queue.shard, gap.from_id, lost) for queue, gap, lost in losses_in_gaps(queues, gaps)
        ]
        if losses:
            self._reader.attribute(losses, token=_token_of(losses))

    def _unexplained(self, behind: Live, gaps: Sequence[GapReport]) -> dict[QueueRef, Counts]:
        """Live odometers that are ahead although everything landed, and that no later gap explains."""
        latest = {shard: max(gap.to_ms for gap in mine) for shard, mine in gaps_by_shard(gaps).items()}
        found = {}
        for queue, ahead in behind.items():
            last_ms, _ = self._reader.odometers(queue.scope).get(queue.queue, (0, ()))
            gap_ms = latest.get(shard_of(queue.scope, shards=self._shards))
            if gap_ms is None or last_ms >= gap_ms:
                found[queue] = ahead
        return found


def _drifting(accounts: Sequence[DriftingQueue], unseen: Live) -> list[QueueDrift]:
    """Every queue with drift, of the ledger or of the live odometers."""
    ledger = {account.queue: account for account in accounts}
    return [
        QueueDrift(
            queue=queue,
            last_ms=ledger[queue].last_ms if queue in ledger else 0,
            ledger_drift=ledger[queue].drift if queue in ledger else (),
            live_drift=_size(unseen.get(queue, ())),
        )
        for queue in {**ledger, **unseen}
    ]


def _token_of(losses: Sequence[tuple[QueueRef, int, str, Counts]]) -> str:
    text = json.dumps([[asdict(queue), shard, gap, lost] for queue, shard, gap, lost in losses])
    return f"losses-{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def _tier_drift(tiers: Sequence[TierSums]) -> int:
    """The sum of all differences between the first tier and the others."""
    first = tiers[0]
    return sum(
        abs(tier.events - first.events)
        + abs(tier.waits - first.waits)
        + _size([mine - other for mine, other in zip(tier.counted, first.counted, strict=True)])
        for tier in tiers[1:]
    )


def _sum_of_losses(gaps: Sequence[GapReport]) -> dict[str, int]:
    return {name: sum(gap.lost.get(name, 0) for gap in gaps) for name in QUEUE_COUNTERS}


def _size(counts: Sequence[int]) -> int:
    return sum(abs(count) for count in counts)


def _shown(queue: QueueRef, counts: Counts) -> dict[str, Any]:
    return {**asdict(queue), "drift": {name: count for name, count in named(counts).items() if count}}
