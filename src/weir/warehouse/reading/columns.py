"""What the rows of a tier hold, in the words of the series builder."""

from __future__ import annotations

from typing import Any

from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.reading.arithmetic import mean
from weir.warehouse.reading.series import Shape

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


def with_waits(row: dict[str, Any]) -> dict[str, Any]:
    """The row with mean, maximum and percentiles of the wait; null where nothing was handed out."""
    count = row["wait_count"]
    if not count:
        row.update(_NO_WAITS)
        return row
    row["wait_mean_ms"] = mean(row["wait_sum_ms"], count)
    row["wait_p50_ms"], row["wait_p95_ms"], row["wait_p99_ms"] = row["wait_percentiles"]
    return row


_NO_WAITS = dict.fromkeys(WAITS)
