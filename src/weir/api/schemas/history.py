"""History as JSON: the documents of `/metrics` below queues, environments and workers, and their shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, Field, create_model

from weir.api.records import Shape, records
from weir.model.durations import DAY_MS
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.percentiles import Sketch
from weir.warehouse.reading.arithmetic import ATTEMPT_END_COUNTERS, error_rate, per_second, utilization_pct
from weir.warehouse.reading.freshness import LandedGap
from weir.warehouse.reading.periods import Resolution, Window
from weir.warehouse.reading.queues import History
from weir.warehouse.reading.series import Columns, Series
from weir.warehouse.reading.series_shapes import ODOMETERS
from weir.warehouse.reading.top import QueueTotals
from weir.warehouse.tables import GapKind


class SeriesFormat(StrEnum):
    POINTS = "points"
    """`timeseries`: an object per bucket."""
    COLUMNS = "columns"
    """`columns`: the members of that object, each with the list of its values."""


_SKETCH = (
    "`ddsketch`: within 1 % of the wait at that rank. `tdigest`: rows of an earlier release, without a "
    "bound. `both`: the greater percentile of the two."
)


class Period(BaseModel):
    start: str = Field(examples=["2026-01-01T00:00:00Z"])
    end: str = Field(examples=["2026-01-01T00:30:00Z"])


class Throughput(BaseModel):
    enqueued: int | None
    dequeued: int | None
    completed: int | None
    completed_per_s: float | None
    cancelled: int | None = Field(
        description="Messages that somebody cancelled; neither completed nor failed."
    )


_LOWEST = "Lowest value in the bucket; null in buckets of earlier releases."
_MEAN = "Mean over the events of the bucket; null in buckets of earlier releases."


class Depth(BaseModel):
    max: int | None
    min: int | None = Field(description=_LOWEST)
    avg: float | None = Field(description=_MEAN)


class Latency(BaseModel):
    """Wait from becoming available to being dequeued; null where nothing was dequeued."""

    avg_wait_ms: float | None
    max_wait_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_age_ms: int | None = Field(description="Age of the oldest waiting message.")


class QueueLatency(Latency):
    """As `Latency`, with minimum and mean of the age of the oldest waiting message."""

    min_age_ms: int | None = Field(description=_LOWEST)
    avg_age_ms: float | None = Field(description=_MEAN)


class Concurrency(BaseModel):
    max: int | None
    min: int | None = Field(description=_LOWEST)
    avg: float | None = Field(description=_MEAN)
    limit: int | None = Field(description="null is no limit.")
    utilization_pct: float | None


class Failures(BaseModel):
    nack: int | None
    dlq: int | None
    ttl_expired: int | None
    lapsed: int | None
    refused: int | None
    error_rate: float | None = Field(description="Share of finished attempts that failed.")


class MetricsPoint(BaseModel):
    timestamp: str
    time_ms: int
    kind: Literal["measured", "carried", "unknown"] = Field(
        description="Whether the bucket has data, is filled from what is known, or is not known."
    )
    throughput: Throughput
    queue_depth: Depth
    latency: Latency
    concurrency: Concurrency
    failures: Failures


class QueuePoint(MetricsPoint):
    latency: QueueLatency
    paused: bool | None
    totals: dict[str, int | None] = Field(
        description="Odometers: lifetime totals of the queue at the end of the bucket."
    )


class WorkerPoint(BaseModel):
    timestamp: str
    time_ms: int
    kind: Literal["measured", "carried", "unknown"]
    figures: dict[str, float | int | None]


class SketchSpan(BaseModel):
    start: str = Field(examples=["2026-01-01T00:00:00Z"])
    end: str = Field(examples=["2026-01-01T00:30:00Z"])
    sketch: Sketch = Field(description=_SKETCH)


class UnknownSpan(BaseModel):
    start: str = Field(examples=["2026-01-01T00:10:00Z"])
    end: str | None = Field(description="null while metrics are off.")
    kind: GapKind
    reason: str = Field(examples=["metrics are switched off since 2026-01-01 00:10:00 UTC"])


class Metrics(BaseModel):
    period: Period
    resolution: Literal["5s", "1m", "1h"] = Field(description="The tier that answered.")
    bucket_ms: int = Field(description="The width of a point; a multiple of the resolution.")
    complete_until: str = Field(description="Events up to then have arrived; later points may still change.")
    percentile_sketches: list[SketchSpan] = Field(
        description="What the percentiles of each part of the period were read from, oldest part first."
    )
    unknown: list[UnknownSpan] = Field(description="The gaps in the period: why points are unknown.")


class QueueMetrics(Metrics):
    queue: str
    timeseries: list[QueuePoint]


class QueueRank(BaseModel):
    queue: str
    counters: dict[str, int]
    queue_length: dict[str, int] = Field(examples=[{"max": 120, "last": 4}])
    running_max: int
    limit: int | None
    utilization_pct: float | None
    oldest_age_ms_max: int
    avg_wait_ms: float | None
    max_wait_ms: float | None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    percentile_sketch: Sketch | None = Field(default=None, description=_SKETCH)
    error_rate: float | None
    completed_per_s: float
    drain_ms: float | None = Field(
        description="Time until empty at these rates; null is never, or not known while telemetry is "
        "more than 60 s behind."
    )


class EnvironmentMetrics(Metrics):
    environment: str
    top_by: str
    top_queues: list[QueueRank]
    timeseries: list[MetricsPoint]


class WorkerMetrics(BaseModel):
    period: Period
    resolution: Literal["5s", "1m", "1h"]
    bucket_ms: int
    worker_id: str | None
    shared: bool = Field(description="Some processes also served other tenants: their counts are left out.")
    timeseries: list[WorkerPoint]


class WorkerView(BaseModel):
    worker_id: str
    role: str
    hostname: str | None = Field(description="Shown to admins; if the process is shared, only to operators.")
    pid: str | None = Field(description="Shown to admins; if the process is shared, only to operators.")
    health: Literal["healthy", "struggling", "silent", "unknown"]
    last_seen: str
    pool_size: int
    shared: bool = Field(description="The process also served other tenants: its counts are null.")
    figures: dict[str, float | int | None]


class WorkerList(BaseModel):
    period: Period
    workers: list[WorkerView]


class WorkerQueue(BaseModel):
    organization: str | None
    project: str | None
    environment: str | None
    queue: str | None = Field(
        description="Null stands for the queues beyond the 50 busiest of each report; shown to operators."
    )
    pops: int
    lag_mean_ms: float | None
    lag_max_ms: int
    lag_p50_ms: float | None = Field(description="Within 1 % of the lag at that rank.")
    lag_p95_ms: float | None
    lag_p99_ms: float | None


class WorkerQueueList(BaseModel):
    period: Period
    worker_id: str
    items: list[WorkerQueue]


def with_columns(answer: type[BaseModel]) -> type[BaseModel]:
    """The model of an answer whose series comes as columns."""
    fields: dict[str, Any] = {name: (field.annotation, field) for name, field in answer.model_fields.items()}
    points, _ = fields.pop("timeseries")
    return create_model(f"{answer.__name__}Columns", **fields, columns=(_columns_of(*get_args(points)), ...))


@cache
def _columns_of(point: type[BaseModel]) -> type[BaseModel]:
    """The members of a point, each with the list of its values."""
    fields: dict[str, Any] = {
        name: (_column(field.annotation), Field(description=field.description))
        for name, field in point.model_fields.items()
    }
    return create_model(f"{point.__name__}Columns", __doc__=point.__doc__, **fields)


def _column(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _columns_of(kind)
    if get_origin(kind) is dict:
        name, value = get_args(kind)
        return dict[name, list[value]]  # type: ignore[valid-type]
    return list[kind]


QueueMetricsColumns = with_columns(QueueMetrics)
EnvironmentMetricsColumns = with_columns(EnvironmentMetrics)
WorkerMetricsColumns = with_columns(WorkerMetrics)


def iso(time_ms: int) -> str:
    """A time as RFC 3339 text in UTC; by hand, because a series has hundreds, most of them on few days."""
    days, rest = divmod(time_ms, DAY_MS)
    seconds, fraction = divmod(rest, 1_000)
    text = f"{_day(days)}T{_clock(seconds)}"
    return f"{text}.{fraction:03}Z" if fraction else f"{text}Z"


@lru_cache(maxsize=2_048)
def _day(number: int) -> str:
    return date.fromordinal(_EPOCH + number).isoformat()


@lru_cache(maxsize=86_400 // 5)
def _clock(second: int) -> str:
    """The time of day; every bucket of the finest tier has its own."""
    minute, second = divmod(second, 60)
    return f"{minute // 60:02}:{minute % 60:02}:{second:02}"


_EPOCH = date(1970, 1, 1).toordinal()


def period_document(window: Window) -> dict[str, Any]:
    return {"start": iso(window.start_ms), "end": iso(window.end_ms)}


QUEUE_GAUGES = {"depth": "queue_length", "running": "running", "limit": "queue_limit"}
ENVIRONMENT_GAUGES = {
    "depth": "environment_length",
    "running": "environment_running",
    "limit": "environment_limit",
}


def metrics_document(
    history: History, *, gauges: dict[str, str], form: SeriesFormat = SeriesFormat.POINTS
) -> dict[str, Any]:
    """The part that a queue's and an environment's document share."""
    window = history.window
    return {
        "period": period_document(window),
        "resolution": Resolution(window.resolution).value,
        "bucket_ms": window.step_ms,
        "complete_until": iso(max(history.complete_until_ms, 0)),
        "percentile_sketches": [
            {"start": iso(part.span.start_ms), "end": iso(part.span.end_ms), "sketch": part.sketch.value}
            for part in history.sketches
        ],
        "unknown": [_unknown_document(gap) for gap in history.gaps],
        **series_document(_shape(history.series, step_ms=window.step_ms, gauges=gauges), form),
    }


def _unknown_document(gap: LandedGap) -> dict[str, Any]:
    return {
        "start": iso(gap.span.start_ms),
        "end": iso(gap.span.end_ms) if gap.ended else None,
        "kind": gap.kind.value,
        "reason": gap.reason,
    }


def series_document(shape: Shape, form: SeriesFormat) -> dict[str, Any]:
    """A series as the points of the source's shape, or as the columns that it is made of."""
    return {"columns": shape} if form is SeriesFormat.COLUMNS else {"timeseries": records(shape)}


def _shape(series: Series, *, step_ms: int, gauges: dict[str, str]) -> Shape:
    """The shape of a `MetricsPoint`, with a column for each of its values."""
    columns = series.columns
    acked, running, limit = columns["acked"], columns[gauges["running"]], columns[gauges["limit"]]
    shape: dict[str, Any] = {
        "timestamp": [iso(time_ms) for time_ms in series.times_ms],
        "time_ms": list(series.times_ms),
        "kind": series.kinds,
        "throughput": {
            "enqueued": columns["enqueued"],
            "dequeued": columns["dequeued"],
            "completed": acked,
            "completed_per_s": [None if count is None else per_second(count, step_ms) for count in acked],
            "cancelled": columns["cancelled"],
        },
        "queue_depth": _spread(columns, gauges["depth"]),
        "latency": {
            "avg_wait_ms": columns["wait_mean_ms"],
            "max_wait_ms": columns["wait_max_ms"],
            "p50_ms": columns["wait_p50_ms"],
            "p95_ms": columns["wait_p95_ms"],
            "p99_ms": columns["wait_p99_ms"],
            "max_age_ms": columns["oldest_age_ms"],
        },
        "concurrency": {
            **_spread(columns, gauges["running"]),
            "limit": [most or None for most in limit],
            "utilization_pct": [
                None if busy is None else utilization_pct(busy, most)
                for busy, most in zip(running, limit, strict=True)
            ],
        },
        "failures": {
            "nack": columns["nacked"],
            "dlq": columns["dead"],
            "ttl_expired": columns["expired"],
            "lapsed": columns["lapsed"],
            "refused": columns["refused"],
            "error_rate": _error_rates(columns),
        },
    }
    if "paused" in columns:
        ages = _spread(columns, "oldest_age_ms")
        shape["latency"] |= {"min_age_ms": ages["min"], "avg_age_ms": ages["avg"]}
        shape["paused"] = [None if paused is None else bool(paused) for paused in columns["paused"]]
        shape["totals"] = {
            name: columns[total] for name, total in zip(QUEUE_COUNTERS, ODOMETERS, strict=True)
        }
    return shape


def _spread(columns: Columns, gauge: str) -> dict[str, Sequence[Any]]:
    return {"max": columns[gauge], "min": columns[f"min_{gauge}"], "avg": columns[f"mean_{gauge}"]}


def _error_rates(columns: Columns) -> list[float | None]:
    moments = zip(*(columns[name] for name in ATTEMPT_END_COUNTERS), strict=True)
    return [None if ends[0] is None else error_rate(*ends) for ends in moments]


def rank_document(totals: QueueTotals) -> dict[str, Any]:
    p50, p95, p99 = totals.percentiles_ms or (None, None, None)
    return {
        "queue": totals.queue,
        "counters": totals.counters,
        "queue_length": {"max": totals.queue_length_max, "last": totals.queue_length_last},
        "running_max": totals.running_max,
        "limit": totals.limit,
        "utilization_pct": totals.utilization_pct,
        "oldest_age_ms_max": totals.oldest_age_ms_max,
        "avg_wait_ms": totals.wait_mean_ms,
        "max_wait_ms": totals.wait_max_ms,
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "percentile_sketch": totals.sketch,
        "error_rate": totals.error_rate,
        "completed_per_s": totals.acked_per_s,
        "drain_ms": None if totals.drain_ms is None or math.isinf(totals.drain_ms) else totals.drain_ms,
    }
