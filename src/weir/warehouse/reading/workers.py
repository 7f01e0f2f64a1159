"""Reads throughput, lag and health of Weir's processes over time, weighted by their samples."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from weir.model.clock import Clock
from weir.model.names import EnvironmentRef, QueueRef
from weir.warehouse.reading.arithmetic import mean, per_second
from weir.warehouse.reading.freshness import FreshnessReader, TrustReader
from weir.warehouse.reading.periods import Window
from weir.warehouse.reading.questions import ask_operator, ask_tenant
from weir.warehouse.reading.queues import table_of
from weir.warehouse.reading.reader import Answer, Reader
from weir.warehouse.reading.series import Columns, Point, PointKind, Shape, TimeSpan, build_series
from weir.warehouse.tables import WORKER_LAGS, WORKERS

MAX_WORKERS = 1_000
MAX_LAG_QUEUES = 1_000
# A process reports every 5 s: it missed four reports.
SILENT_AFTER_MS = 20_000
# Compared with the mean over the window, so single late timers do not count.
STRUGGLING_LAG_MS = 100.0

COUNTERS = ("jobs_done", "pushes", "pops", "acks", "transactions", "errors", "deaths")
LAG_PERCENTILES = ("lag_p50_ms", "lag_p95_ms", "lag_p99_ms")
OF_TENANTS = frozenset(
    (
        *COUNTERS,
        *(f"{name}_per_s" for name in COUNTERS),
        "lag_mean_ms",
        "lag_max_ms",
        *LAG_PERCENTILES,
        "backoff_mean",
        "backoff_max",
    )
)
"""Figures that follow from the work for tenants; the others describe the process itself."""
_MEASURES = (
    "workers",
    "event_loop_lag_mean_ms",
    "event_loop_lag_max_ms",
    "free_slots_mean",
    "free_slots_min",
    "internal_queue_mean",
    "internal_queue_max",
    "backoff_mean",
    "backoff_max",
    "lag_mean_ms",
    "lag_max_ms",
    *LAG_PERCENTILES,
)
_SHAPE = Shape(counters=COUNTERS, gauges=(), measures=_MEASURES)


class Health(StrEnum):
    HEALTHY = "healthy"
    STRUGGLING = "struggling"
    """Its event loop runs late, or its pool is used up."""
    SILENT = "silent"
    """It has not reported for a while: it ended or hangs."""
    UNKNOWN = "unknown"
    """No telemetry has landed, so its state is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    role: str
    hostname: str
    worker_id: str
    pid: str
    health: Health
    last_seen_ms: int
    pool_size: int
    figures: dict[str, float | int | None]
    """The counters, their rates (`<name>_per_s`) and the measures of a series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLags:
    """The lags of the messages that a process got from one queue."""

    queue: QueueRef | None
    """None stands for the queues beyond the busiest of each report."""
    pops: int
    lag_mean_ms: float | None
    lag_max_ms: int
    percentiles_ms: dict[str, float | None]
    """By the names in `LAG_PERCENTILES`."""


class WorkerReader:
    """Reads the metrics of processes. A process serves all tenants, so the caller names the ones to show.

    None instead of a list of names stands for every process, and is for operators.
    """

    def __init__(
        self, reader: Reader, freshness: FreshnessReader, trust: TrustReader, *, clock: Clock
    ) -> None:
        self._reader = reader
        self._freshness = freshness
        self._trust = trust
        self._clock = clock

    async def summaries(self, window: Window, *, worker_ids: Sequence[str] | None) -> list[WorkerSummary]:
        """The processes that reported within the window, newest report first."""
        asked = {**_span(window), **_named(worker_ids)}
        rows, lags, fresh = await asyncio.gather(
            self._reader.ask(
                ask_operator(
                    "workers", table=table_of(WORKERS, window.resolution), limit=MAX_WORKERS, **asked
                )
            ),
            self._reader.ask(
                ask_operator("worker_lags", table=table_of(WORKER_LAGS, window.resolution), **asked)
            ),
            self._freshness.of("worker"),
        )
        # While metrics are off, nothing is known of any process.
        complete_ms = 0 if fresh.off else fresh.all_complete_until_ms
        by_id = {row["worker_id"]: row for row in lags}
        return [
            _summary(
                {**row, **_percentiles(by_id.get(row["worker_id"]))},
                window=window,
                complete_until_ms=complete_ms,
            )
            for row in rows
        ]

    async def series(
        self, window: Window, *, worker_ids: Sequence[str] | None, uncounted_ids: Sequence[str] = ()
    ) -> list[Point]:
        """Throughput, lag and pressure of the processes together, by bucket.

        The counters and lags of the processes in `uncounted_ids` are left out.
        """
        asked = {
            **_span(window),
            **_named(worker_ids),
            "step_s": window.step_ms // 1_000,
            "uncounted_ids": list(uncounted_ids),
        }
        rows, lags, trust = await asyncio.gather(
            self._reader.ask(
                ask_operator("worker_series", table=table_of(WORKERS, window.resolution), **asked)
            ),
            self._reader.ask(
                ask_operator("worker_lag_series", table=table_of(WORKER_LAGS, window.resolution), **asked)
            ),
            self._trust.of_all("worker"),
        )
        by_bucket = {row["bucket_ms"]: row for row in lags}
        rows = [{**row, **_percentiles(by_bucket.get(row["bucket_ms"]))} for row in rows]
        series = build_series(
            window,
            shape=_SHAPE,
            found=_columns(rows),
            gaps=[gap.span for gap in trust.gaps],
            known=TimeSpan(start_ms=0, end_ms=trust.complete_until_ms),
        )
        return [with_rates(point, step_ms=window.step_ms) for point in series.points()]

    async def queue_lags(
        self, window: Window, *, worker_id: str, environment: EnvironmentRef | None
    ) -> list[QueueLags]:
        """The lags of one process by queue: in one environment, or in all if `environment` is None."""
        asked: dict[str, Any] = {
            **_span(window),
            "table": table_of(WORKER_LAGS, window.resolution),
            "worker_id": worker_id,
            "limit": MAX_LAG_QUEUES,
        }
        question = (
            ask_operator("worker_queue_lags", **asked)
            if environment is None
            else ask_tenant("own_queue_lags", environment, **asked)
        )
        return [_queue_lags(row) for row in await self._reader.ask(question)]


def health_of(
    *, last_seen_ms: int, complete_until_ms: int, lag_ms: float | None, free_slots_min: int, pool_size: int
) -> Health:
    """How a process is, as of the newest event that has landed."""
    if complete_until_ms - last_seen_ms > SILENT_AFTER_MS:
        return Health.SILENT
    if complete_until_ms <= 0:
        return Health.UNKNOWN
    late = lag_ms is not None and lag_ms >= STRUGGLING_LAG_MS
    used_up = pool_size > 0 and free_slots_min == 0
    return Health.STRUGGLING if late or used_up else Health.HEALTHY


def with_rates(point: Point, *, step_ms: int) -> Point:
    """The point with a rate beside each counter."""
    rates = {
        f"{name}_per_s": None
        if point.kind is PointKind.UNKNOWN
        else per_second(point.values[name] or 0, step_ms)
        for name in COUNTERS
    }
    return Point(time_ms=point.time_ms, kind=point.kind, values={**point.values, **rates})


def _span(window: Window) -> dict[str, int]:
    return {"start_s": window.start_ms // 1_000, "end_s": window.end_ms // 1_000}


def _named(worker_ids: Sequence[str] | None) -> dict[str, Any]:
    return {"everyone": int(worker_ids is None), "worker_ids": list(worker_ids or ())}


def _percentiles(row: dict[str, Any] | None) -> dict[str, float | None]:
    """The percentiles of the lag; None if no message was got, or if the row is of an earlier release."""
    if row is None:
        return dict.fromkeys(LAG_PERCENTILES)
    return dict(zip(LAG_PERCENTILES, row["lag_percentiles"], strict=True))


def _queue_lags(row: dict[str, Any]) -> QueueLags:
    names = {name: row[name] for name in ("organization", "project", "environment", "queue")}
    return QueueLags(
        queue=QueueRef(**names) if row["queue"] else None,
        pops=row["lag_count"],
        lag_mean_ms=mean(row["lag_sum_ms"], row["lag_count"]),
        lag_max_ms=row["lag_max_ms"],
        percentiles_ms=_percentiles(row),
    )


def _columns(rows: Answer) -> Columns:
    found = [{"bucket_ms": row["bucket_ms"], **_figures(row), "workers": row["workers"]} for row in rows]
    return {name: [row[name] for row in found] for name in found[0]} if found else {}


def _figures(row: dict[str, Any]) -> dict[str, float | int | None]:
    samples = row["samples"]
    lag_us = mean(row["event_loop_lag_us_sum"], samples)
    return {
        **{name: row[name] for name in COUNTERS},
        "event_loop_lag_mean_ms": None if lag_us is None else lag_us / 1_000,
        "event_loop_lag_max_ms": row["event_loop_lag_us_max"] / 1_000 if samples else None,
        "free_slots_mean": mean(row["free_slots_sum"], samples),
        "free_slots_min": row["free_slots_min"] if samples else None,
        "internal_queue_mean": mean(row["internal_queue_sum"], samples),
        "internal_queue_max": row["internal_queue_max"] if samples else None,
        "backoff_mean": mean(row["backoff_sum"], row["counted_samples"]),
        "backoff_max": row["backoff_max"] if row["counted_samples"] else None,
        "lag_mean_ms": mean(row["lag_ms_sum"], row["lag_count"]),
        "lag_max_ms": row["lag_ms_max"] if row["lag_count"] else None,
        **{name: row[name] for name in LAG_PERCENTILES},
    }


def _summary(row: dict[str, Any], *, window: Window, complete_until_ms: int) -> WorkerSummary:
    figures = _figures(row)
    last_seen_ms = int(row["last"]["at"].timestamp() * 1_000)
    return WorkerSummary(
        role=row["role"],
        hostname=row["hostname"],
        worker_id=row["worker_id"],
        pid=row["pid"],
        health=health_of(
            last_seen_ms=last_seen_ms,
            complete_until_ms=complete_until_ms,
            lag_ms=figures["event_loop_lag_mean_ms"],
            free_slots_min=row["free_slots_min"],
            pool_size=row["last"]["pool_size"],
        ),
        last_seen_ms=last_seen_ms,
        pool_size=row["last"]["pool_size"],
        figures={
            **figures,
            **{f"{name}_per_s": per_second(row[name], window.span_ms) for name in COUNTERS},
        },
    )
