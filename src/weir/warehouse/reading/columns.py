"""What the rows of a tier hold, in the words of the series builder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.reading.arithmetic import mean
from weir.warehouse.reading.series import Shape

ENVIRONMENT_GAUGES = ("environment_length", "environment_running", "environment_limit")
QUEUE_GAUGES = ("queue_length", "running", "queue_limit", *ENVIRONMENT_GAUGES, "paused", "oldest_age_ms")
ODOMETERS = tuple(f"{name}_total" for name in QUEUE_COUNTERS)
WAITS = ("wait_mean_ms", "wait_max_ms", "wait_p50_ms", "wait_p95_ms", "wait_p99_ms")

QUEUE_SHAPE = Shape(
    counters=(*QUEUE_COUNTERS, "wait_count"), gauges=QUEUE_GAUGES, odometers=ODOMETERS, measures=WAITS
)
ENVIRONMENT_SHAPE = Shape(
    counters=(*QUEUE_COUNTERS, "wait_count"), gauges=ENVIRONMENT_GAUGES, measures=(*WAITS, "oldest_age_ms")
)


def flat_row(row: Mapping[str, Any], gauges: tuple[str, ...]) -> dict[str, Any]:
    """A row of the warehouse with its tuple of last gauges and its percentiles as columns."""
    flat = {name: value for name, value in row.items() if name not in ("last", "wait_percentiles")}
    last = row["last"]
    flat.update({f"{gauge}_last": last[gauge] for gauge in gauges})
    return flat | wait_columns(row)


def wait_columns(row: Mapping[str, Any]) -> dict[str, float | None]:
    """Mean, maximum and percentiles of the wait; null where nothing was handed out."""
    count = row.get("wait_count", 0)
    if not count:
        return dict.fromkeys(WAITS)
    p50, p95, p99 = row.get("wait_percentiles", (None, None, None))
    return {
        "wait_mean_ms": mean(row["wait_sum_ms"], count),
        "wait_max_ms": row["wait_max_ms"],
        "wait_p50_ms": p50,
        "wait_p95_ms": p95,
        "wait_p99_ms": p99,
    }
