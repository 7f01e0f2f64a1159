"""Ranks the queues of an environment by one figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from weir.errors import InvalidInput
from weir.model.clock import Clock
from weir.model.durations import HOUR_MS
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.telemetry.events import QUEUE_COUNTERS, count_left
from weir.warehouse.percentiles import Sketch, kinds_of, sketch_of
from weir.warehouse.reading.arithmetic import (
    ATTEMPT_END_COUNTERS,
    drain_ms,
    error_rate,
    mean,
    per_second,
    utilization_pct,
)
from weir.warehouse.reading.digests import DigestReader
from weir.warehouse.reading.flows import FlowReader
from weir.warehouse.reading.freshness import FreshnessReader
from weir.warehouse.reading.pace import Pace
from weir.warehouse.reading.periods import Resolution, Window
from weir.warehouse.reading.questions import ask_tenant
from weir.warehouse.reading.queues import table_of
from weir.warehouse.reading.reader import Answer, Reader
from weir.warehouse.tables import BUCKET_MS, QUEUES

MAX_TOP_QUEUES = 1_000


class By(StrEnum):
    """The figures by which queues can be ranked; each is a column of the answer."""

    QUEUE_LENGTH = "queue_length"
    RUNNING = "running"
    OLDEST_AGE = "oldest_age_ms"
    ENQUEUED = "enqueued"
    DEQUEUED = "dequeued"
    ACKED = "acked"
    NACKED = "nacked"
    DEAD = "dead"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    LAPSED = "lapsed"
    REFUSED = "refused"
    WAIT_MEAN = "wait_mean_ms"
    WAIT_MAX = "wait_max_ms"
    WAIT_P50 = "wait_p50_ms"
    WAIT_P95 = "wait_p95_ms"
    WAIT_P99 = "wait_p99_ms"
    ERROR_RATE = "error_rate"
    UTILIZATION_PCT = "utilization_pct"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTotals:
    """The figures of one queue over a span."""

    queue: str
    counters: dict[str, int]
    queue_length_max: int
    queue_length_last: int
    running_max: int
    limit: int | None
    oldest_age_ms_max: int
    wait_mean_ms: float | None
    wait_max_ms: float | None
    percentiles_ms: tuple[float, float, float] | None
    sketch: Sketch | None
    error_rate: float | None
    utilization_pct: float | None
    acked_per_s: float
    drain_ms: float | None
    """At the current rates, or at those of a span that is over; infinite if the backlog does not shrink. None
    if the current rates are not known."""


def parse_by(text: str) -> By:
    try:
        return By(text)
    except ValueError:
        known = ", ".join(f"`{by}`" for by in By)
        raise InvalidInput(f"queues cannot be ranked by `{text:.64}`; expected one of {known}") from None


class TopReader:
    def __init__(
        self,
        reader: Reader,
        flows: FlowReader,
        freshness: FreshnessReader,
        digests: DigestReader,
        *,
        clock: Clock,
        shards: int,
    ) -> None:
        self._reader = reader
        self._digests = digests
        self._flows = flows
        self._freshness = freshness
        self._clock = clock
        self._shards = shards

    async def of(
        self, environment: EnvironmentRef, window: Window, *, by: By, limit: int
    ) -> list[QueueTotals]:
        """The `limit` queues with the greatest figures, greatest first, without queues that did nothing."""
        if not 1 <= limit <= MAX_TOP_QUEUES:
            raise InvalidInput(f"`{limit}` queues cannot be listed; ask for 1 to {MAX_TOP_QUEUES}")
        frame = _coarse(window)
        digests = await self._digests.in_table(frame["table"])
        ranked = await self._reader.ask(
            ask_tenant("rank_queues", environment, digests=digests, by=by.value, limit=limit, **frame)
        )
        names = [row["queue"] for row in ranked]
        if not names:
            return []
        # A second question for the winners only: the columns that the ranking did not need are read for few
        # queues.
        rows = await self._reader.ask(
            ask_tenant("queue_totals", environment, digests=digests, queues=names, **frame)
        )
        # Rates divide by the span that was read: it begins and ends on whole minutes or hours, but not after
        # now.
        end_ms = min(frame["end_s"] * 1_000, self._clock.now_ms())
        span_ms = max(end_ms - frame["start_s"] * 1_000, 1)
        paces = await self._paces(environment, rows, window)
        totals = {row["queue"]: _totals(row, span_ms=span_ms, paces=paces) for row in rows}
        return [totals[name] for name in names if name in totals]

    async def _paces(
        self, environment: EnvironmentRef, rows: Answer, window: Window
    ) -> dict[str, Pace] | None:
        """The current rates of queues with waiting messages; empty for a window that is over.

        None if they are not known, because the newest events have not landed.
        """
        fresh = await self._freshness.of("queue")
        shard = shard_of(environment, shards=self._shards)
        waiting = [row["queue"] for row in rows if row["last"]["queue_length"] > 0]
        over = window.end_ms < fresh.now_ms - 2 * BUCKET_MS
        if over or not waiting:
            return {}
        if fresh.is_stale(shard):
            return None
        end_ms = fresh.complete_until_ms(shard)
        found = await self._flows.paces(environment, waiting, end_ms=end_ms)
        return {name: buckets.pace(end_ms=end_ms) for name, buckets in found.items()}


def _coarse(window: Window) -> dict[str, Any]:
    """The span as parameters of a coarse tier."""
    # A ranking reads every queue. Over 1.4 million rows of minutes it took 1.8 s, hence the hours (0060).
    resolution = Resolution.MINUTE if window.span_ms <= 2 * HOUR_MS else Resolution.HOUR
    if window.resolution is Resolution.HOUR:
        resolution = Resolution.HOUR
    step_ms = resolution.step_ms
    return {
        "table": table_of(QUEUES, resolution),
        "start_s": (window.start_ms - window.start_ms % step_ms) // 1_000,
        "end_s": -(-window.end_ms // step_ms) * step_ms // 1_000,
    }


def _totals(row: dict[str, Any], *, span_ms: int, paces: Mapping[str, Pace] | None) -> QueueTotals:
    counters = {name: int(row[name]) for name in QUEUE_COUNTERS}
    waited = row["wait_count"] > 0
    backlog = row["last"]["queue_length"]
    return QueueTotals(
        queue=row["queue"],
        counters=counters,
        queue_length_max=row["queue_length"],
        queue_length_last=backlog,
        running_max=row["running"],
        limit=row["queue_limit"] or None,
        oldest_age_ms_max=row["oldest_age_ms"],
        wait_mean_ms=mean(row["wait_sum_ms"], row["wait_count"]),
        wait_max_ms=row["wait_max_ms"] if waited else None,
        percentiles_ms=tuple(row["wait_percentiles"]) if waited else None,
        sketch=sketch_of(row.get("wait_sketches", kinds_of(row["wait_count"]))),
        error_rate=error_rate(*(counters[name] for name in ATTEMPT_END_COUNTERS)),
        utilization_pct=utilization_pct(row["running"], row["queue_limit"]),
        acked_per_s=per_second(counters["acked"], span_ms),
        drain_ms=_drain_ms(row["queue"], paces, backlog=backlog, counters=counters, span_ms=span_ms),
    )


def _drain_ms(
    queue: str,
    paces: Mapping[str, Pace] | None,
    *,
    backlog: int,
    counters: Mapping[str, int],
    span_ms: int,
) -> float | None:
    if paces is None:
        return None if backlog else 0.0
    if queue in paces:
        return paces[queue].drain_ms(backlog)
    arrived, left = counters["enqueued"], count_left(counters)
    return drain_ms(backlog=backlog, arrived=arrived, left=left, span_ms=span_ms)
