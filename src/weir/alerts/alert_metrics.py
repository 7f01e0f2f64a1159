"""The metrics that a rule can watch, and how each is judged over a window."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from weir.errors import InvalidInput
from weir.model.wording import duration, number, share


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
    highest: float | None = None
    """A threshold above this can never be crossed."""


def _queue(unit: str, over: Over, doc: str, *, highest: float | None = None) -> MetricDescription:
    return MetricDescription(unit=unit, about=About.QUEUE, over=over, doc=doc, highest=highest)


def _operations(unit: str, doc: str) -> MetricDescription:
    return MetricDescription(unit=unit, about=About.OPERATIONS, over=Over.ADDS_UP, doc=doc)


CATALOGUE: Mapping[Metric, MetricDescription] = MappingProxyType(
    {
        Metric.BACKLOG: _queue("messages", Over.HOLDS, "Waiting messages."),
        Metric.LATENCY_MEAN: _queue("ms", Over.ADDS_UP, "Mean wait from available to dequeued."),
        Metric.LATENCY_P50: _queue("ms", Over.ADDS_UP, "Median wait."),
        Metric.LATENCY_P95: _queue("ms", Over.ADDS_UP, "Wait that 95 % of messages stay below."),
        Metric.LATENCY_P99: _queue("ms", Over.ADDS_UP, "Wait that 99 % of messages stay below."),
        Metric.ERROR_RATE: _queue(
            "ratio", Over.ADDS_UP, "Failed attempts as a share of finished ones, 0 to 1.", highest=1.0
        ),
        Metric.OLDEST_AGE: _queue("ms", Over.HOLDS, "Age of the oldest waiting message."),
        Metric.DEAD_LETTERS: _queue("messages", Over.ADDS_UP, "Messages that died in the window."),
        Metric.EXPIRIES: _queue("messages", Over.ADDS_UP, "Messages that expired in the window."),
        Metric.CANCELLATIONS: _queue(
            "messages", Over.ADDS_UP, "Messages that somebody cancelled in the window."
        ),
        Metric.THROUGHPUT: _queue("messages/s", Over.ADDS_UP, "Messages done per second."),
        Metric.DRAIN_TIME: _queue(
            "ms", Over.ADDS_UP, "Time until the backlog is gone at the window's rates; endless if it grows."
        ),
        Metric.EXPIRING: _queue(
            "messages", Over.ADDS_UP, "Waiting messages that will expire before their turn comes."
        ),
        Metric.EVENT_LOOP_LAG: MetricDescription(
            unit="ms",
            about=About.WORKERS,
            over=Over.HOLDS,
            doc="Worst event-loop lag of any process.",
        ),
        Metric.PIPELINE_LAG: MetricDescription(
            unit="ms",
            about=About.PIPELINE,
            over=Over.ADDS_UP,
            doc="Age of the newest moment that the warehouse knows completely.",
        ),
        Metric.METRICS_DRIFT: _queue(
            "counts",
            Over.ADDS_UP,
            "Counts of the queue that the newest complete audit found lost or doubled.",
        ),
        Metric.OPERATION_AGE: _operations("ms", "Age of the oldest queued operation of the environment."),
        Metric.OPERATION_BACKLOG: _operations("operations", "Queued operations of the environment."),
        Metric.FAILED_OPERATIONS: _operations(
            "operations", "Queued operations that failed for good in the window."
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
    return number(value)


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
