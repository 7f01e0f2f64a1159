"""Says which columns of a tier are counters, gauges, odometers and measures, for the series builder."""

from __future__ import annotations

from dataclasses import dataclass

from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.percentiles import Sketch, sketch_of
from weir.warehouse.reading.periods import Window
from weir.warehouse.reading.series import Columns, Shape, TimeSpan

ENVIRONMENT_GAUGES = ("environment_length", "environment_running", "environment_limit")
QUEUE_GAUGES = ("queue_length", "running", "queue_limit", "paused", "oldest_age_ms")
ODOMETERS = tuple(f"{name}_total" for name in QUEUE_COUNTERS)
WAITS = ("wait_mean_ms", "wait_max_ms", "wait_p50_ms", "wait_p95_ms", "wait_p99_ms")

QUEUE_SHAPE = Shape(
    counters=(*QUEUE_COUNTERS, "wait_count"),
    gauges=QUEUE_GAUGES,
    spread=("queue_length", "running", "oldest_age_ms"),
    odometers=ODOMETERS,
    measures=WAITS,
)
ENVIRONMENT_SHAPE = Shape(
    counters=(*QUEUE_COUNTERS, "wait_count"),
    gauges=ENVIRONMENT_GAUGES,
    spread=("environment_length", "environment_running"),
    measures=(*WAITS, "oldest_age_ms"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchPart:
    """Buckets in a row whose percentiles were read from the same sketch."""

    span: TimeSpan
    sketch: Sketch


def sketch_parts(found: Columns, window: Window) -> tuple[SketchPart, ...]:
    """The sketch from which the percentiles of each part were read; buckets without waits do not count."""
    parts: list[SketchPart] = []
    for bucket_ms, kinds in sorted(
        zip(found.get("bucket_ms", ()), found.get("wait_sketches", ()), strict=True)
    ):
        sketch = sketch_of(kinds)
        if sketch is None:
            continue
        end_ms = min(bucket_ms + window.step_ms, window.end_ms)
        begun = parts.pop() if parts and parts[-1].sketch is sketch else None
        start_ms = bucket_ms if begun is None else begun.span.start_ms
        parts.append(SketchPart(span=TimeSpan(start_ms=start_ms, end_ms=end_ms), sketch=sketch))
    return tuple(parts)


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
