"""The metrics that a rule can watch, and how each is judged over a window."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from weir.errors import InvalidInput
from weir.model.wording import duration, number, share, span


class Metric(StrEnum):
    BACKLOG = "backlog"
    LATENCY_MEAN = "latency_mean"
    LATENCY_P50 = "latency_p50"
    LATENCY_P95 = "latency_p95"
    LATENCY_P99 = "latency_p99"
    ERROR_RATE = "error_rate"
    OLDEST_AGE = "oldest_age"
    DEAD_LETTERS = "dead_letters"
    EXPIRIES = "expiries"
    CANCELLATIONS = "cancellations"
    THROUGHPUT = "throughput"
    DRAIN_TIME = "drain_time"
    EXPIRING = "expiring"
    # Rules are stored with this name. The lag of messages at a process is another figure (`WORKER_LAG`).
    EVENT_LOOP_LAG = "worker_lag"
    PIPELINE_LAG = "pipeline_lag"
    METRICS_DRIFT = "metrics_drift"
    OPERATION_AGE = "operation_age"
    OPERATION_BACKLOG = "operation_backlog"
    FAILED_OPERATIONS = "failed_operations"


class About(StrEnum):
    """The subject of a metric. A rule about queues raises one alert per queue, every other rule one."""

    QUEUE = "queue"
    WORKERS = "workers"
    PIPELINE = "pipeline"
    OPERATIONS = "operations"


class Over(StrEnum):
    """How a window is judged."""

    HOLDS = "holds"
    """A level: it fires if it holds in every bucket of the window, and is clear if it holds in none."""
    ADDS_UP = "adds_up"
    """One figure over the whole window; clear if that figure stayed calm for a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDescription:
    unit: str
    about: About
    over: Over
    doc: str
    words: str
    """The metric within a sentence: `p95 wait`."""
    highest: float | None = None
    """A threshold above this can never be crossed."""


def _queue(words: str, unit: str, over: Over, doc: str, *, highest: float | None = None) -> MetricDescription:
    return MetricDescription(unit=unit, about=About.QUEUE, over=over, doc=doc, words=words, highest=highest)


def _operations(words: str, unit: str, doc: str) -> MetricDescription:
    return MetricDescription(unit=unit, about=About.OPERATIONS, over=Over.ADDS_UP, doc=doc, words=words)


CATALOGUE: Mapping[Metric, MetricDescription] = MappingProxyType(
    {
        Metric.BACKLOG: _queue("backlog", "messages", Over.HOLDS, "Waiting messages."),
        Metric.LATENCY_MEAN: _queue("mean wait", "ms", Over.ADDS_UP, "Mean wait from available to dequeued."),
        Metric.LATENCY_P50: _queue("median wait", "ms", Over.ADDS_UP, "Median wait."),
        Metric.LATENCY_P95: _queue("p95 wait", "ms", Over.ADDS_UP, "Wait that 95 % of messages stay below."),
        Metric.LATENCY_P99: _queue("p99 wait", "ms", Over.ADDS_UP, "Wait that 99 % of messages stay below."),
        Metric.ERROR_RATE: _queue(
            "share of failed attempts",
            "ratio",
            Over.ADDS_UP,
            "Failed attempts as a share of finished ones, 0 to 1.",
            highest=1.0,
        ),
        Metric.OLDEST_AGE: _queue(
            "age of the oldest message", "ms", Over.HOLDS, "Age of the oldest waiting message."
        ),
        Metric.DEAD_LETTERS: _queue("deaths", "messages", Over.ADDS_UP, "Messages that died in the window."),
        Metric.EXPIRIES: _queue("expiries", "messages", Over.ADDS_UP, "Messages that expired in the window."),
        Metric.CANCELLATIONS: _queue(
            "cancellations", "messages", Over.ADDS_UP, "Messages that somebody cancelled in the window."
        ),
        Metric.THROUGHPUT: _queue("throughput", "messages/s", Over.ADDS_UP, "Messages done per second."),
        Metric.DRAIN_TIME: _queue(
            "time to drain",
            "ms",
            Over.ADDS_UP,
            "Time until the backlog is gone at the window's rates; endless if it grows.",
        ),
        Metric.EXPIRING: _queue(
            "number of messages that will expire",
            "messages",
            Over.ADDS_UP,
            "Waiting messages that will expire before their turn comes.",
        ),
        Metric.EVENT_LOOP_LAG: MetricDescription(
            unit="ms",
            about=About.WORKERS,
            over=Over.HOLDS,
            doc="Worst event-loop lag of any process.",
            words="event loop lag",
        ),
        Metric.PIPELINE_LAG: MetricDescription(
            unit="ms",
            about=About.PIPELINE,
            over=Over.ADDS_UP,
            doc="Age of the newest moment that the warehouse knows completely.",
            words="pipeline lag",
        ),
        Metric.METRICS_DRIFT: _queue(
            "metrics drift",
            "counts",
            Over.ADDS_UP,
            "Counts of the queue that the newest complete audit found lost or doubled.",
        ),
        Metric.OPERATION_AGE: _operations(
            "age of the oldest operation", "ms", "Age of the oldest queued operation of the environment."
        ),
        Metric.OPERATION_BACKLOG: _operations(
            "operation backlog", "operations", "Queued operations of the environment."
        ),
        Metric.FAILED_OPERATIONS: _operations(
            "failed operations", "operations", "Queued operations that failed for good in the window."
        ),
    }
)


def spell_value(metric: Metric, value: float | None) -> str:
    """A value of the metric with its unit, for people; stores keep an infinite value as None."""
    if value is None or math.isinf(value):
        return "endless"
    unit = CATALOGUE[metric].unit
    if unit == "ms":
        return duration(value)
    if unit == "ratio":
        return share(value)
    if value == 1 and "/" not in unit:
        unit = unit.removesuffix("s")
    return f"{number(value)} {unit}"


# These count events, so texts say that they happen in the window. All others hold for the window.
_COUNTED = frozenset({Metric.DEAD_LETTERS, Metric.EXPIRIES, Metric.CANCELLATIONS, Metric.FAILED_OPERATIONS})
_COMPARISONS = {">": "over", ">=": "at least", "<": "under", "<=": "at most"}


def value_words(metric: Metric, value: float | None) -> str:
    """A value of the metric as a sentence: `p95 wait is 42.6 s`, `deaths: 480 messages`."""
    joint = ":" if metric in _COUNTED else " is"
    return f"{CATALOGUE[metric].words}{joint} {spell_value(metric, value)}"


def condition_words(metric: Metric, operator: str, threshold: float, window_ms: int) -> str:
    """A rule's condition for people: `p95 wait over 30 s for 1 minute`."""
    limit = f"{_COMPARISONS[operator]} {spell_value(metric, threshold)}"
    return f"{CATALOGUE[metric].words} {limit} {'in' if metric in _COUNTED else 'for'} {span(window_ms)}"


_ALIASES = {"latency": Metric.LATENCY_MEAN, "queue_depth": Metric.BACKLOG, "depth": Metric.BACKLOG}


def parse_metric(text: str) -> Metric:
    """The metric of that name, in any case; `latency` alone is its mean."""
    name = text.strip().lower() if isinstance(text, str) else ""
    if name in _ALIASES:
        return _ALIASES[name]
    try:
        return Metric(name)
    except ValueError:
        known = ", ".join(f"`{metric}`" for metric in Metric)
        raise InvalidInput(f"`{text!s:.64}` is not an alert metric; expected one of {known}") from None
