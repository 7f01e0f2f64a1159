"""Writes gaps and rejected events into the warehouse, and reads how far each stream has landed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from weir.model.limits import MAX_TIME_MS
from weir.telemetry.stream_ids import format_id
from weir.telemetry.streams import Stream
from weir.warehouse import tables
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.queries import load_warehouse_queries
from weir.warehouse.tables import GapKind


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """A span of one stream without events: they were dropped, or never written."""

    metric: str
    shard: int
    from_id: str
    to_id: str
    """Empty while the gap is open."""
    reason: str
    entries: int | None
    kind: GapKind = GapKind.DROPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectRow:
    """Events of one stream that were not taken as they came, all for the same reason."""

    metric: str
    shard: int
    reason: str
    action: str
    events: int
    first_id: str
    last_id: str
    samples: tuple[str, ...]


def read_landed_positions(connection: ClickHouseConnection) -> dict[Stream, str]:
    """The last landed id of every stream."""
    # Not by `operator_queries`: it would load the driver of PostgreSQL into every process of Spark.
    query = load_warehouse_queries("weir.warehouse.reading", "operator.sql")["landed"]
    return {
        (row["metric"], row["shard"]): format_id((row["at_ms"], row["sequence"]))
        for row in connection.rows(query.text)
    }


def insert_gaps(connection: ClickHouseConnection, gaps: Sequence[GapRow], *, token: str, now_ms: int) -> None:
    rows: list[Mapping[str, object]] = [
        {
            "metric": gap.metric,
            "shard": gap.shard,
            "from_id": gap.from_id,
            "to_id": gap.to_id,
            "from_at": _time(int(gap.from_id.partition("-")[0])),
            "to_at": _time(int((gap.to_id or gap.from_id).partition("-")[0])),
            "reason": gap.reason,
            "kind": gap.kind.value,
            "entries": gap.entries,
            "detected_at": _time(now_ms),
        }
        for gap in gaps
    ]
    connection.insert_rows(tables.GAPS, rows, token=token)


def insert_rejects(
    connection: ClickHouseConnection, rejects: Sequence[RejectRow], *, token: str, now_ms: int
) -> None:
    rows: list[Mapping[str, object]] = [
        {
            "metric": reject.metric,
            "shard": reject.shard,
            "reason": reject.reason,
            "action": reject.action,
            "events": reject.events,
            "first_id": reject.first_id,
            "last_id": reject.last_id,
            "samples": list(reject.samples),
            "detected_at": _time(now_ms),
        }
        for reject in rejects
    ]
    connection.insert_rows(tables.REJECTS, rows, token=token)


def _time(ms: int) -> datetime:
    """A time that ClickHouse can hold, whatever an id claims."""
    # An id may claim any 64-bit time, and neither DateTime64(3) nor Python's datetime can hold all of them.
    return datetime.fromtimestamp(min(ms, MAX_TIME_MS) / 1_000, UTC)
