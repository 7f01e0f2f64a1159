"""From the rows of a tier to one point a bucket: what was measured, what is carried, what is unknown.

Pure. No row means no activity, so counters fill with zero. A gauge keeps its last known value, seeded
from before the window. Where telemetry was lost or has not arrived, nothing is made up: the values are
null and the point says `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from weir.warehouse.reading.periods import Window

Value = float | int | None
Row = Mapping[str, Value]


class Kind(StrEnum):
    MEASURED = "measured"
    """The bucket has rows of its own."""
    CARRIED = "carried"
    """Nothing happened in the bucket: counters are zero, gauges are the last known ones."""
    UNKNOWN = "unknown"
    """Telemetry of this bucket was lost, has expired or has not arrived yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Which columns of a row are what."""

    counters: tuple[str, ...]
    gauges: tuple[str, ...]
    """Each has two columns: `<name>_max` is shown, `<name>_last` is carried."""
    odometers: tuple[str, ...] = ()
    """Lifetime totals: shown and carried as they are."""
    measures: tuple[str, ...] = ()
    """Means and percentiles: null where nothing was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    time_ms: int
    kind: Kind
    values: Mapping[str, Value]


def build_series(
    window: Window,
    *,
    shape: Shape,
    rows: Iterable[Row],
    seed: Row | None = None,
    gaps: Sequence[Span] = (),
    known: Span | None = None,
) -> list[Point]:
    """One point a bucket of `window`.

    `seed` is the last row before the window. A bucket that touches one of `gaps` is unknown whatever
    rows it has; a bucket outside `known` is unknown unless it has rows.
    """
    by_bucket = {int(row["bucket_ms"] or 0): row for row in rows}
    lost = _lost_buckets(window, gaps)
    carried = _carried(shape, seed) if seed else _nothing(shape)
    points = []
    for time_ms in range(window.start_ms, window.end_ms, window.step_ms):
        row = by_bucket.get(time_ms)
        if time_ms in lost or (row is None and known is not None and not _holds(known, time_ms, window)):
            carried = _nothing(shape)
            points.append(Point(time_ms=time_ms, kind=Kind.UNKNOWN, values=_unknown(shape)))
        elif row is None:
            points.append(Point(time_ms=time_ms, kind=Kind.CARRIED, values=_idle(shape, carried)))
        else:
            carried = _carried(shape, row)
            points.append(Point(time_ms=time_ms, kind=Kind.MEASURED, values=_measured(shape, row)))
    return points


def _lost_buckets(window: Window, gaps: Sequence[Span]) -> set[int]:
    return {bucket for gap in gaps for bucket in _buckets_of(window, gap)}


def _buckets_of(window: Window, gap: Span) -> Iterator[int]:
    first = max(window.bucket_of(gap.start_ms), window.start_ms)
    return iter(range(first, min(max(gap.end_ms, gap.start_ms + 1), window.end_ms), window.step_ms))


def _holds(known: Span, time_ms: int, window: Window) -> bool:
    """Whether a bucket is wholly after the start of what is known and begins before its end."""
    return known.start_ms <= time_ms + window.step_ms - 1 and time_ms < known.end_ms


def _carried(shape: Shape, row: Row) -> dict[str, Value]:
    gauges = {name: row[f"{name}_last"] for name in shape.gauges}
    return gauges | {name: row[name] for name in shape.odometers}


def _nothing(shape: Shape) -> dict[str, Value]:
    return dict.fromkeys((*shape.gauges, *shape.odometers))


def _measured(shape: Shape, row: Row) -> dict[str, Value]:
    gauges = {name: row[f"{name}_max"] for name in shape.gauges}
    return gauges | {name: row[name] for name in (*shape.counters, *shape.odometers, *shape.measures)}


def _idle(shape: Shape, carried: Mapping[str, Value]) -> dict[str, Value]:
    return {**dict.fromkeys(shape.counters, 0), **dict.fromkeys(shape.measures), **carried}


def _unknown(shape: Shape) -> dict[str, Value]:
    return dict.fromkeys((*shape.counters, *shape.gauges, *shape.odometers, *shape.measures))
