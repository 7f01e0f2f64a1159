"""Judges measurements by a rule. Pure: the state of telemetry is an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weir.alerts.alert_metrics import Metric
from weir.alerts.forecast import expiring
from weir.alerts.machine import Level, Observation
from weir.alerts.rule import RuleDraft
from weir.telemetry.events import count_left
from weir.warehouse.reading.arithmetic import ATTEMPT_END_COUNTERS, drain_ms, error_rate, mean, per_second
from weir.warehouse.reading.pace import Pace
from weir.warehouse.reading.windows import Levels, Percentiles, Sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number over a window; None if nothing was measured."""

    value: float | None
    at_rest: bool
    """Nothing waits and nothing runs. Without a measurement the rule is then clear, not unknown."""


Measurement = Levels | Figure
QUIET = Levels(low=0, high=0, now=0)
"""The levels of a queue without recent telemetry. If something waited in it, it would be reported every few
seconds."""
NOTHING = Figure(value=None, at_rest=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trustworthiness:
    """How far telemetry can be trusted for one window."""

    stale: bool
    """Telemetry is further behind than rules tolerate."""
    lossy: bool
    """Events of this window were lost."""


SOUND = Trustworthiness(stale=False, lossy=False)


def judge(draft: RuleDraft, seen: Measurement, *, trust: Trustworthiness, now_ms: int) -> Observation:
    """Judge one measurement of one queue by one rule.

    Lost events can hide a breach of a rule with `>` or `>=`, but cannot invent one. So a window with lost
    events may fire, and is never clear. A rule with `<` or `<=` is unknown then, because values look lower
    without the lost events.
    """
    if trust.stale:
        return Observation(level=Level.UNKNOWN)
    observation = (
        _judge_levels(draft, seen, now_ms=now_ms) if isinstance(seen, Levels) else _judge_figure(draft, seen)
    )
    if trust.lossy and (observation.level is Level.CLEAR or not draft.operator.rising):
        return Observation(level=Level.UNKNOWN, value=observation.value)
    return observation


def _judge_levels(draft: RuleDraft, seen: Levels, *, now_ms: int) -> Observation:
    calmest, worst = (seen.low, seen.high) if draft.operator.rising else (seen.high, seen.low)
    if draft.breaches(calmest):
        return Observation(level=Level.BREACH, value=seen.now)
    if draft.is_clear(worst):
        return Observation(level=Level.CLEAR, value=seen.now, clear_since_ms=now_ms - draft.window_ms)
    return Observation(level=Level.PARTIAL, value=seen.now)


def _judge_figure(draft: RuleDraft, seen: Figure) -> Observation:
    if seen.value is None:
        return Observation(level=Level.CLEAR if seen.at_rest else Level.UNKNOWN)
    if draft.breaches(seen.value):
        return Observation(level=Level.BREACH, value=seen.value)
    return Observation(level=Level.CLEAR if draft.is_clear(seen.value) else Level.PARTIAL, value=seen.value)


def from_sums(
    metric: Metric, sums: Sums, *, span_ms: int, ttl_ms: int | None = None, pace: Pace | None = None
) -> Figure:
    """The figure of a metric that adds up over a window.

    Of two forecasts the calmer one is taken. In the rates of the window a burst that is over still counts; in
    the current rates (`pace`) a short stall counts for too much.
    """
    pace = pace or Pace()
    counts = sums.counts
    at_rest = sums.backlog == 0 and sums.running == 0
    match metric:
        case Metric.LATENCY_MEAN:
            value = mean(sums.wait_sum_ms, sums.wait_count)
        case Metric.ERROR_RATE:
            value = error_rate(*(counts[name] for name in ATTEMPT_END_COUNTERS))
        case Metric.DEAD_LETTERS:
            value = float(counts["dead"] + counts["expired"])
        case Metric.EXPIRIES:
            value = float(counts["expired"])
        case Metric.CANCELLATIONS:
            value = float(counts["cancelled"])
        case Metric.THROUGHPUT:
            value = per_second(counts["acked"], span_ms)
        case Metric.DRAIN_TIME:
            value = min(
                drain_ms(
                    backlog=sums.backlog, arrived=counts["enqueued"], left=count_left(counts), span_ms=span_ms
                ),
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
    """A value for a store or a document, which have no infinity: None stands for infinite."""
    return value if value is not None and math.isfinite(value) else None
