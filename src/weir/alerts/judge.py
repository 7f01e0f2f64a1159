"""From figures to what an evaluation sees. Pure: the telemetry's own state is an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weir.alerts.forecast import expiring
from weir.alerts.machine import Level, Sight
from weir.alerts.metrics import Metric
from weir.alerts.rule import RuleDraft
from weir.warehouse.reading.arithmetic import drain_ms, error_rate, mean, per_second
from weir.warehouse.reading.pace import Pace
from weir.warehouse.reading.windows import Levels, Percentiles, Sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number over a window; None if nothing was measured."""

    value: float | None
    at_rest: bool
    """Nothing waits and nothing runs, so that nothing measured means nothing wrong."""


Seen = Levels | Figure
QUIET = Levels(low=0, high=0, now=0)
"""A queue that has not been heard of: one in which something waits says so every few seconds."""
NOTHING = Figure(value=None, at_rest=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trustworthiness:
    """How far telemetry can be believed for one window."""

    stale: bool
    """It is further behind than can be tolerated."""
    lossy: bool
    """Events of this window were lost."""


SOUND = Trustworthiness(stale=False, lossy=False)


def judge(draft: RuleDraft, seen: Seen, *, trust: Trustworthiness, now_ms: int) -> Sight:
    """What one rule sees of one queue.

    Lost events can hide a breach but not make one up: a window with a loss may still fire, and is never
    called clear.
    """
    if trust.stale:
        return Sight(level=Level.UNKNOWN)
    sight = (
        _judge_levels(draft, seen, now_ms=now_ms) if isinstance(seen, Levels) else _judge_figure(draft, seen)
    )
    if trust.lossy and sight.level is Level.CLEAR:
        return Sight(level=Level.UNKNOWN, value=sight.value)
    return sight


def _judge_levels(draft: RuleDraft, seen: Levels, *, now_ms: int) -> Sight:
    calmest, worst = (seen.low, seen.high) if draft.operator.rising else (seen.high, seen.low)
    if draft.breaches(calmest):
        return Sight(level=Level.BREACH, value=seen.now)
    if draft.is_clear(worst):
        return Sight(level=Level.CLEAR, value=seen.now, clear_since_ms=now_ms - draft.window_ms)
    return Sight(level=Level.PARTIAL, value=seen.now)


def _judge_figure(draft: RuleDraft, seen: Figure) -> Sight:
    if seen.value is None:
        return Sight(level=Level.CLEAR if seen.at_rest else Level.UNKNOWN)
    if draft.breaches(seen.value):
        return Sight(level=Level.BREACH, value=seen.value)
    return Sight(level=Level.CLEAR if draft.is_clear(seen.value) else Level.PARTIAL, value=seen.value)


def from_sums(
    metric: Metric, sums: Sums, *, span_ms: int, ttl_ms: int | None = None, pace: Pace | None = None
) -> Figure:
    """The figure of a metric that adds up over a window.

    A forecast is the calmer one of two: by the rates of the window, in which a burst that is over still
    counts, and by the rates of now (`pace`), in which a short stall counts for too much.
    """
    pace = pace or Pace()
    counts = sums.counts
    at_rest = sums.backlog == 0 and sums.running == 0
    left = counts["acked"] + counts["dead"] + counts["expired"]
    match metric:
        case Metric.LATENCY_MEAN:
            value = mean(sums.wait_sum_ms, sums.wait_count)
        case Metric.ERROR_RATE:
            value = error_rate(
                acked=counts["acked"], nacked=counts["nacked"], dead=counts["dead"], lapsed=counts["lapsed"]
            )
        case Metric.DEAD_LETTERS:
            value = float(counts["dead"] + counts["expired"])
        case Metric.EXPIRIES:
            value = float(counts["expired"])
        case Metric.THROUGHPUT:
            value = per_second(counts["acked"], span_ms)
        case Metric.DRAIN_TIME:
            value = min(
                drain_ms(backlog=sums.backlog, arrived=counts["enqueued"], left=left, span_ms=span_ms),
                pace.drain_ms(sums.backlog),
            )
        case Metric.EXPIRING:
            value = float(
                expiring(
                    backlog=sums.backlog,
                    oldest_age_ms=sums.oldest_age_ms,
                    served_per_s=max(per_second(counts["dequeued"], span_ms), pace.taken),
                    ttl_ms=ttl_ms,
                )
            )
        case _:
            raise ValueError(f"`{metric}` does not come from sums")
    return Figure(value=value, at_rest=at_rest)


def from_percentiles(metric: Metric, waits: Percentiles) -> Figure:
    values = {
        Metric.LATENCY_P50: waits.p50_ms,
        Metric.LATENCY_P95: waits.p95_ms,
        Metric.LATENCY_P99: waits.p99_ms,
    }
    value = values[metric] if waits.wait_count else None
    return Figure(value=value, at_rest=waits.backlog == 0)


def finite(value: float | None) -> float | None:
    """A value for a store or a document that knows no infinity: endless is None."""
    return value if value is not None and math.isfinite(value) else None
