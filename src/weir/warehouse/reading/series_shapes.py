"""Says which columns of a tier are counters, gauges, odometers and measures, for the series builder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, groupby
from operator import itemgetter

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
    if "wait_sketches" not in found:
        waited = list(compress(found.get("bucket_ms", ()), found.get("wait_count", ())))
        return (_part(waited, Sketch.DDSKETCH, window),) if waited else ()
    kinds = sorted(zip(found["bucket_ms"], found["wait_sketches"], strict=True))
    runs = groupby(
        [(bucket_ms, sketch) for bucket_ms, kind in kinds if (sketch := sketch_of(kind))], itemgetter(1)
    )
    return tuple(_part([bucket_ms for bucket_ms, _ in run], sketch, window) for sketch, run in runs)


def _part(buckets: Sequence[int], sketch: Sketch, window: Window) -> SketchPart:
    end_ms = min(max(buckets) + window.step_ms, window.end_ms)
    return SketchPart(span=TimeSpan(start_ms=min(buckets), end_ms=end_ms), sketch=sketch)


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
