"""From the rows of a tier to one point a bucket: what was measured, what is carried, what is unknown.

Pure. No row means no activity, so counters fill with zero. A gauge keeps its last known value, seeded
from before the window. Where telemetry was lost or has not arrived, nothing is made up: the values are
null and the point says `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from weir.warehouse.reading.periods import Window

Value = float | int | None
Row = Mapping[str, Any]
"""The columns of one bucket: `bucket_ms`, those that a `Shape` names, and `last_<gauge>` for each gauge."""


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
    """Each has two: its maximum, the column of its name, is shown; the column `last_<name>` is carried."""
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
    """What the shape names; a measured point has the other columns of its row too."""


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
    by_bucket = {row["bucket_ms"]: row for row in rows}
    lost = _lost_buckets(window, gaps)
    filler = _Filler(shape, seed)
    points = []
    for time_ms in range(window.start_ms, window.end_ms, window.step_ms):
        row = by_bucket.get(time_ms)
        if time_ms in lost or (row is None and known is not None and not _holds(known, time_ms, window)):
            kind, values = Kind.UNKNOWN, filler.unknown()
        elif row is None:
            kind, values = Kind.CARRIED, filler.idle()
        else:
            kind, values = Kind.MEASURED, filler.measured(row)
        points.append(Point(time_ms=time_ms, kind=kind, values=values))
    return points


class _Filler:
    """The values of one bucket after another; it remembers the last row, for what is carried."""

    def __init__(self, shape: Shape, seed: Row | None) -> None:
        self._shape = shape
        shown = (*shape.gauges, *shape.counters, *shape.odometers, *shape.measures)
        self._nothing: dict[str, Value] = dict.fromkeys(shown)
        self._last = seed
        self._idle: dict[str, Value] | None = None

    def measured(self, row: Row) -> Mapping[str, Value]:
        self._last, self._idle = row, None
        return row

    def unknown(self) -> Mapping[str, Value]:
        """Nothing is known here, and nothing from before can be carried past it."""
        self._last, self._idle = None, None
        return self._nothing

    def idle(self) -> Mapping[str, Value]:
        """One mapping serves every bucket until the next row."""
        if self._idle is None:
            self._idle = self._nothing | dict.fromkeys(self._shape.counters, 0) | self._carried()
        return self._idle

    def _carried(self) -> dict[str, Value]:
        if self._last is None:
            return {}
        row = self._last
        gauges = {name: row[f"last_{name}"] for name in self._shape.gauges}
        return gauges | {name: row[name] for name in self._shape.odometers}


def _lost_buckets(window: Window, gaps: Sequence[Span]) -> set[int]:
    return {bucket for gap in gaps for bucket in _buckets_of(window, gap)}


def _buckets_of(window: Window, gap: Span) -> Iterator[int]:
    first = max(window.bucket_of(gap.start_ms), window.start_ms)
    return iter(range(first, min(max(gap.end_ms, gap.start_ms + 1), window.end_ms), window.step_ms))


def _holds(known: Span, time_ms: int, window: Window) -> bool:
    """Whether a bucket is wholly after the start of what is known and begins before its end."""
    return known.start_ms <= time_ms + window.step_ms - 1 and time_ms < known.end_ms
