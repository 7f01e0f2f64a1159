"""Says which columns of a tier are counters, gauges, odometers and measures, for the series builder."""

from __future__ import annotations

from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.reading.series import Columns, Shape

ENVIRONMENT_GAUGES = ("environment_length", "environment_running", "environment_limit")
QUEUE_GAUGES = ("queue_length", "running", "queue_limit", "paused", "oldest_age_ms")
ODOMETERS = tuple(f"{name}_total" for name in QUEUE_COUNTERS)
WAITS = ("wait_mean_ms", "wait_max_ms", "wait_p50_ms", "wait_p95_ms", "wait_p99_ms")

QUEUE_SHAPE = Shape(
    counters=(*QUEUE_COUNTERS, "wait_count"), gauges=QUEUE_GAUGES, odometers=ODOMETERS, measures=WAITS
)
ENVIRONMENT_SHAPE = Shape(
    counters=(*QUEUE_COUNTERS, "wait_count"), gauges=ENVIRONMENT_GAUGES, measures=(*WAITS, "oldest_age_ms")
)


def with_waits(found: Columns) -> Columns:
    """The columns plus mean, maximum and percentiles of the wait; null where no message was handed out."""
    if not found:
        return found
    names = ("wait_count", "wait_sum_ms", "wait_max_ms", "wait_percentiles")
    rows = [
        (total / count, highest, *percentiles) if count else _NO_WAITS
        for count, total, highest, percentiles in zip(*(found[name] for name in names), strict=True)
    ]
    return {**found, **dict(zip(WAITS, zip(*rows, strict=True), strict=True))}


_NO_WAITS = (None,) * len(WAITS)
