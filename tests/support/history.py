"""Telemetry history for tests: rows in the landing tables, as the pipeline would put them there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa

from weir.model.names import QueueRef
from weir.pipeline.definition import QUEUE_METRIC, WORKER_LAG_METRIC, WORKER_METRIC
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.tables import BUCKET_MS, GAPS, GapKind

_GAUGES = (
    "queue_length",
    "running",
    "queue_limit",
    "environment_length",
    "environment_running",
    "environment_limit",
    "paused",
    "oldest_age_ms",
)
_MEASURED = ("queue_length", "running", "environment_length", "environment_running", "oldest_age_ms")
_WORKER_NUMBERS = (
    "samples",
    "event_loop_lag_us_sum",
    "event_loop_lag_us_max",
    "free_slots_sum",
    "free_slots_min",
    "max_pool_size",
    "last_pool_size",
    "internal_queue_sum",
    "internal_queue_max",
    "backoff_sum",
    "backoff_max",
    "jobs_done",
    "pushes",
    "pops",
    "acks",
    "transactions",
    "errors",
    "deaths",
    "lag_count",
    "lag_ms_sum",
    "lag_ms_max",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The events of one queue at one time; gauges have the values after them."""

    queue: QueueRef
    at_ms: int
    counts: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, int] = field(default_factory=dict)
    peaks: Mapping[str, int] = field(default_factory=dict)
    """Maxima of gauges where they were above the value at the end."""
    lows: Mapping[str, int] = field(default_factory=dict)
    """Minima of gauges where they were under the value at the end."""
    odometers: Mapping[str, int] = field(default_factory=dict)
    waits_ms: Sequence[int] = ()
    sequence: int | None = None
    """The second half of its stream id; by default its place in the insert."""


def land_moments(connection: ClickHouseConnection, moments: Sequence[Moment], *, shard: int = 0) -> None:
    """Put moments into the tiers, in one insert."""
    if moments:
        connection.insert(QUEUE_METRIC.landing, landing_table(moments, shard=shard), token=uuid4().hex)


def landing_table(moments: Sequence[Moment], *, shard: int = 0) -> pa.Table:
    """The rows of one insert, one per moment."""
    rows = [_landing_row(moment, shard=shard, sequence=number) for number, moment in enumerate(moments)]
    return pa.Table.from_pylist(rows, schema=_schema(rows))


def of_earlier_release(rows: pa.Table) -> pa.Table:
    """Landing rows as a release before 0007 inserted them."""
    later = ("min_", "sum_", "cancelled")
    return rows.drop_columns([name for name in rows.column_names if name.startswith(later)])


def land_worker(
    connection: ClickHouseConnection,
    *,
    at_ms: int,
    worker_id: str,
    role: str = "api",
    shard: int = 0,
    **numbers: int,
) -> None:
    """Put one flush of one process into the tiers."""
    row = {
        "role": role,
        "hostname": "host",
        "worker_id": worker_id,
        "pid": "1",
        **_when(at_ms, shard=shard, sequence=0),
        **dict.fromkeys(_WORKER_NUMBERS, 0),
        **numbers,
    }
    connection.insert(WORKER_METRIC.landing, pa.Table.from_pylist([row]), token=uuid4().hex)


def land_lags(
    connection: ClickHouseConnection,
    *,
    at_ms: int,
    worker_id: str,
    queue: QueueRef | None,
    lags_ms: Sequence[int],
) -> None:
    """Put the lags of one process for one queue, or for all other queues (None), into the tiers."""
    names = queue.names if queue else ("", "", "", "")
    row = {
        "worker_id": worker_id,
        **dict(zip(("organization", "project", "environment", "queue"), names, strict=True)),
        **_when(at_ms, shard=0, sequence=0),
        "lag_ms": list(lags_ms),
    }
    connection.insert(WORKER_LAG_METRIC.landing, pa.Table.from_pylist([row]), token=uuid4().hex)


def land_gap(
    connection: ClickHouseConnection,
    *,
    start_ms: int,
    end_ms: int,
    shard: int = 0,
    metric: str = "queue",
    kind: GapKind = GapKind.DROPPED,
) -> None:
    """Record a span without events."""
    row = {
        "metric": metric,
        "shard": shard,
        "from_id": f"{start_ms}-0",
        "to_id": f"{end_ms}-0",
        "from_at": _time(start_ms),
        "to_at": _time(end_ms),
        "reason": "trimmed",
        "kind": kind.value,
        "entries": 1,
        "detected_at": _time(end_ms),
    }
    connection.insert(GAPS, pa.Table.from_pylist([row]), token=uuid4().hex)


def _landing_row(moment: Moment, *, shard: int, sequence: int) -> dict[str, Any]:
    queue = moment.queue
    gauges = {name: moment.gauges.get(name, 0) for name in _GAUGES}
    return {
        "organization": queue.organization,
        "project": queue.project,
        "environment": queue.environment,
        "queue": queue.queue,
        **_when(moment.at_ms, shard=shard, sequence=sequence if moment.sequence is None else moment.sequence),
        **{name: moment.counts.get(name, 0) for name in QUEUE_COUNTERS},
        **{f"max_{name}": max(moment.peaks.get(name, 0), value) for name, value in gauges.items()},
        **{f"last_{name}": value for name, value in gauges.items()},
        **{f"min_{name}": min(moment.lows.get(name, gauges[name]), gauges[name]) for name in _MEASURED},
        **{f"sum_{name}": gauges[name] for name in _MEASURED},
        **{f"{name}_total": moment.odometers.get(name, 0) for name in QUEUE_COUNTERS},
        "wait_ms": list(moment.waits_ms),
    }


def _when(at_ms: int, *, shard: int, sequence: int) -> dict[str, Any]:
    return {
        "bucket_start": _time(at_ms - at_ms % BUCKET_MS),
        "shard": shard,
        "rebuilt": 0,
        "last_at": _time(at_ms),
        "last_sequence": sequence,
        "events": 1,
    }


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, tz=UTC)


def _schema(rows: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """The schema of the rows. Arrow cannot guess the type of a list that is empty in every row."""
    guessed = pa.Table.from_pylist([{k: v for k, v in rows[0].items() if k != "wait_ms"}]).schema
    return guessed.append(pa.field("wait_ms", pa.list_(pa.uint32())))
