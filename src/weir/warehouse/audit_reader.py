"""The two accounts of every queue, side by side: what was counted and what the odometers say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weir.model.names import EnvironmentRef, QueueRef
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse import tables
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.queries import load_warehouse_queries

MAX_ROWS = 100_000
Counts = tuple[int, ...]
"""One number a counter, in the order of `QUEUE_COUNTERS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftingQueue:
    """A queue whose accounts do not agree: `drift` is odometer - counted - lost in known gaps."""

    queue: QueueRef
    shard: int
    counted: Counts
    totals: Counts
    lost: Counts
    drift: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """A queue in a shard that has gaps."""

    queue: QueueRef
    shard: int
    last_ms: int
    """When it last spoke, as far as that has landed."""
    settled: Sequence[str]
    """The gaps, by their first id, for which its losses are known; zero is a loss too."""
    drift: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSums:
    table: str
    events: int
    waits: int
    counted: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class GapReport:
    metric: str
    shard: int
    from_id: str
    to_id: str
    from_ms: int
    to_ms: int
    reason: str
    entries: int | None
    lost: Mapping[str, int]
    """By counter, from the odometers of the queues that spoke since."""


class AuditReader:
    """Asks the warehouse what the audit needs to know."""

    def __init__(self, connection: ClickHouseConnection) -> None:
        self._connection = connection

    def totals(self) -> dict[str, Any]:
        row = self._ask("totals")[0]
        return {"queues": row["queues"], "events": row["events"], **named(row["counted"])}

    def disagreeing(self) -> list[DriftingQueue]:
        """Every queue with drift."""
        return [
            DriftingQueue(
                queue=QueueRef(**{name: row[name] for name in tables.QUEUES.dimensions}),
                shard=row["shard"],
                **{name: tuple(row[name]) for name in ("counted", "totals", "lost", "drift")},
            )
            for row in self._ask("accounts", limit=MAX_ROWS)
        ]

    def speakers(self, shards: Sequence[int]) -> list[Speaker]:
        """Every queue of some shards."""
        return [
            Speaker(
                queue=QueueRef(**{name: row[name] for name in tables.QUEUES.dimensions}),
                shard=row["shard"],
                last_ms=row["last_ms"],
                settled=row["settled"],
                drift=tuple(row["drift"]),
            )
            for row in self._ask("speakers", shards=list(shards))
        ]

    def environments(self) -> list[EnvironmentRef]:
        return [EnvironmentRef(**row) for row in self._ask("environments")]

    def odometers(self, environment: EnvironmentRef) -> dict[str, tuple[int, Counts]]:
        """When it last spoke, and its odometers, by queue name, as far as they have landed."""
        rows = self._ask(
            "odometers",
            organization=environment.organization,
            project=environment.project,
            environment=environment.environment,
        )
        return {row["queue"]: (row["last_ms"], tuple(row["totals"])) for row in rows}

    def tier_sums(self, *, start_s: int) -> list[TierSums]:
        names = [tier.table for each in (tables.QUEUES, tables.ENVIRONMENTS) for tier in each.tiers]
        return [self._sums_of(name, start_s) for name in names]

    def tier_differences(self, *, start_s: int, limit: int = 100) -> list[dict[str, Any]]:
        """Queues whose tiers do not hold the same counts."""
        return self._ask("tier_differences", start_s=start_s, limit=limit)

    def gaps(self, *, limit: int = 100) -> list[GapReport]:
        return [GapReport(**{**row, "lost": named(row["lost"])}) for row in self._ask("gaps", limit=limit)]

    def rejects(self) -> list[dict[str, Any]]:
        return self._ask("rejects")

    def attribute(self, losses: Sequence[tuple[QueueRef, int, str, Counts]], *, token: str) -> None:
        """Write down what queues lost in a gap, given as queue, shard, the gap's first id, and losses."""
        rows = [
            {
                **{name: getattr(queue, name) for name in tables.QUEUES.dimensions},
                "shard": shard,
                "gap": gap,
                **named(lost),
            }
            for queue, shard, gap, lost in losses
        ]
        self._connection.insert_rows(tables.LOSSES, rows, token=token)

    def _sums_of(self, table: str, start_s: int) -> TierSums:
        row = self._ask("tier_sums", table=table, start_s=start_s)[0]
        return TierSums(table=table, events=row["events"], waits=row["waits"], counted=tuple(row["counted"]))

    def _ask(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        return self._connection.rows(
            load_warehouse_queries("weir.warehouse", "audit_reader.sql")[name].text, parameters
        )


def named(counts: Sequence[int]) -> dict[str, int]:
    """Counts by counter; none where there are none."""
    return dict(zip(QUEUE_COUNTERS, counts, strict=False))
