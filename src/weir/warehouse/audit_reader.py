"""Reads both accounts of every queue for the audit: the summed counts and the odometers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weir.model.names import EnvironmentRef, QueueRef
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse import tables
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.queries import load_warehouse_queries
from weir.warehouse.tables import GapKind

# The largest installation that is measured has 100,000 queues, so the list is complete even if all of them
# drift.
MAX_ROWS = 100_000
ENVIRONMENTS_PER_QUESTION = 200
Counts = tuple[int, ...]
"""One number per counter, in the order of `QUEUE_COUNTERS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftingQueue:
    """A queue whose accounts do not agree: `drift` is odometer - counted - lost in known gaps."""

    queue: QueueRef
    shard: int
    last_ms: int
    counted: Counts
    totals: Counts
    lost: Counts
    drift: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardQueue:
    """The account of a queue by which the losses in gaps of its shard are settled."""

    queue: QueueRef
    shard: int
    last_ms: int
    """The time of its newest event that has landed."""
    settled: Sequence[str]
    """The first ids of the gaps in which its losses are known, even if nothing was lost."""
    drift: Counts
    known: Counts
    """The drift that was known before the gap."""


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
    kind: GapKind
    from_id: str
    to_id: str
    """Empty while it is open."""
    open: bool
    from_ms: int
    to_ms: int
    """For an open gap, now."""
    reason: str
    entries: int | None
    lost: Mapping[str, int]
    """Per counter, from the odometers of the queues that emitted an event after the gap."""


class AuditReader:
    """Asks the warehouse the questions of the audit."""

    def __init__(
        self, connection: ClickHouseConnection, *, table: Callable[[str], str] = lambda name: name
    ) -> None:
        """`table` maps the name of a table with counts to the name under which it is read."""
        self._connection = connection
        self._table = table

    def totals(self) -> dict[str, int]:
        """How many `queues` and `events` the ledger knows."""
        return self._ask("totals")[0]

    def disagreeing(self) -> list[DriftingQueue]:
        """Every queue with drift."""
        return [
            DriftingQueue(
                queue=QueueRef(**{name: row[name] for name in tables.QUEUES.dimensions}),
                shard=row["shard"],
                last_ms=row["last_ms"],
                **{name: tuple(row[name]) for name in ("counted", "totals", "lost", "drift")},
            )
            for row in self._ask("accounts", limit=MAX_ROWS)
        ]

    def queues_after_gaps(self, gaps: Sequence[GapReport]) -> list[ShardQueue]:
        """The queues that sent an event after one of these gaps, if their losses in it are not known."""
        spans = {
            "shards": [gap.shard for gap in gaps],
            "gaps": [gap.from_id for gap in gaps],
            "ends_ms": [gap.to_ms for gap in gaps],
        }
        return [
            ShardQueue(
                queue=QueueRef(**{name: row[name] for name in tables.QUEUES.dimensions}),
                shard=row["shard"],
                last_ms=row["last_ms"],
                settled=row["settled"],
                drift=tuple(row["drift"]),
                known=tuple(row["known"]),
            )
            for row in self._ask("queues_after_gaps", **spans)
        ]

    def lives(self) -> int:
        """How many lives have landed."""
        return int(self._ask("lives_landed", lives=self._table(tables.LIFE_LEDGER))[0]["lives"])

    def life_accounts(self) -> list[ShardQueue]:
        """Every queue whose landed lives do not agree with its odometer; its drift is one number."""
        rows = self._ask("life_accounts", lives=self._table(tables.LIFE_LEDGER), limit=MAX_ROWS)
        return [
            ShardQueue(
                queue=QueueRef(**{name: row[name] for name in tables.QUEUES.dimensions}),
                shard=row["shard"],
                last_ms=row["last_ms"],
                settled=row["settled"],
                drift=(row["drift"],),
                known=(0,),
            )
            for row in rows
        ]

    def attribute_lives(self, losses: Sequence[tuple[QueueRef, int, str, Counts]], *, token: str) -> None:
        """Record how many lives queues lost in gaps, given as for `attribute`."""
        rows = [
            {
                **{name: getattr(queue, name) for name in tables.QUEUES.dimensions},
                "shard": shard,
                "gap": gap,
                "lives": lost[0],
            }
            for queue, shard, gap, lost in losses
        ]
        self._connection.insert_rows(tables.LIFE_LOSSES, rows, token=token)

    def environments(self) -> list[EnvironmentRef]:
        return [EnvironmentRef(**row) for row in self._ask("environments")]

    def odometers(self, environments: Sequence[EnvironmentRef]) -> dict[QueueRef, tuple[int, Counts]]:
        """The time and the odometers of the newest landed event of each queue."""
        scopes = [(one.organization, one.project, one.environment) for one in environments]
        return {
            QueueRef(**{name: row[name] for name in tables.QUEUES.dimensions}): (
                row["last_ms"],
                tuple(row["totals"]),
            )
            for start in range(0, len(scopes), ENVIRONMENTS_PER_QUESTION)
            for row in self._ask("odometers", environments=scopes[start : start + ENVIRONMENTS_PER_QUESTION])
        }

    def now_s(self) -> int:
        """ClickHouse's time. Rows expire by it, so the clock of this process does not matter."""
        return int(self._ask("now")[0]["now_s"])

    def tier_sums(self, *, start_s: int) -> list[TierSums]:
        names = [tier.table for each in (tables.QUEUES, tables.ENVIRONMENTS) for tier in each.tiers]
        return [self._sums_of(name, start_s) for name in names]

    def queue_tier_drift(self, *, start_s: int) -> dict[QueueRef, int]:
        """The sum of the differences between a queue's tiers, for queues that have any."""
        rows = self._ask_tiers("queue_tier_drift", start_s)
        return {
            QueueRef(**{name: row[name] for name in tables.QUEUES.dimensions}): row["drift"] for row in rows
        }

    def environment_tier_drift(self, *, start_s: int) -> dict[EnvironmentRef, int]:
        """The sum of the differences between an environment's tiers and those of its queues."""
        rows = self._ask_tiers("environment_tier_drift", start_s)
        return {
            EnvironmentRef(**{name: row[name] for name in tables.ENVIRONMENTS.dimensions}): row["drift"]
            for row in rows
        }

    def gaps(self, *, limit: int = 100) -> list[GapReport]:
        return [
            GapReport(
                **{
                    **row,
                    "kind": GapKind(row["kind"]),
                    "open": bool(row["open"]),
                    "lost": named(row["lost"]),
                }
            )
            for row in self._ask("gaps", limit=limit)
        ]

    def switch_gaps(self) -> dict[tuple[str, int, str], str]:
        """The end of each gap of metrics that were switched off, by metric, shard and first id."""
        rows = self._ask("switch_gaps", kind=GapKind.SWITCHED_OFF.value)
        return {(row["metric"], row["shard"], row["from_id"]): row["to_id"] for row in rows}

    def rejects(self) -> list[dict[str, Any]]:
        return self._ask("rejects")

    def attribute(self, losses: Sequence[tuple[QueueRef, int, str, Counts]], *, token: str) -> None:
        """Record what queues lost in gaps, given as queue, shard, the gap's first id and the counts."""
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
        row = self._ask("tier_sums", table=self._table(table), start_s=start_s)[0]
        return TierSums(table=table, events=row["events"], waits=row["waits"], counted=tuple(row["counted"]))

    def _ask_tiers(self, name: str, start_s: int) -> list[dict[str, Any]]:
        sets = {"queues": tables.QUEUES, "environments": tables.ENVIRONMENTS}
        names = {
            f"{subject}_{step}": self._table(tier.table)
            for subject, tiers in sets.items()
            for step, tier in zip(tables.STEPS_MS, tiers.tiers, strict=True)
        }
        # Two more than the counters, because events and waits are compared too.
        return self._ask(name, **names, start_s=start_s, width=len(QUEUE_COUNTERS) + 2, limit=MAX_ROWS)

    def _ask(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        return self._connection.rows(audit_query(name), {"ledger": self._table(tables.LEDGER), **parameters})


def audit_query(name: str) -> str:
    return load_warehouse_queries("weir.warehouse", "audit_reader.sql")[name].text


def named(counts: Sequence[int]) -> dict[str, int]:
    """Counts by the name of their counter; an empty mapping for no counts."""
    # A LEFT JOIN without a match gives an empty array, so `strict` would refuse gaps without known losses.
    return dict(zip(QUEUE_COUNTERS, counts, strict=False))
