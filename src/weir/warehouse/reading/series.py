"""From the rows of a tier to one point a bucket: what was measured, what is carried, what is unknown.

Pure. After the first event, no row means no activity, so counters fill with zero. A gauge keeps its last
known value, seeded from before the window. Before the first event, and where telemetry was lost or has not
arrived, nothing is made up: the values are null and the point says `unknown`.

Everything here is columns, as the warehouse answers and as documents are written: a series has up to 1,500
points of thirty values, and a value costs least when it is only handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Any

from weir.warehouse.reading.periods import Window

Value = float | int | None
Columns = Mapping[str, Sequence[Any]]
"""Values by name, equally many of each; without rows there are no columns."""


class PointKind(StrEnum):
    MEASURED = "measured"
    """The bucket has rows of its own."""
    CARRIED = "carried"
    """Nothing happened in the bucket: counters are zero, gauges are the last known ones."""
    UNKNOWN = "unknown"
    """Telemetry of this bucket was lost, has expired, has not arrived yet or had not begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Which columns are what."""

    counters: tuple[str, ...]
    gauges: tuple[str, ...]
    """Shown is the maximum, the column of its name; carried is its value in the column `last`."""
    odometers: tuple[str, ...] = ()
    """Lifetime totals: shown and carried as they are."""
    measures: tuple[str, ...] = ()
    """Means and percentiles: null where nothing was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    time_ms: int
    kind: PointKind
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One point a bucket: when it begins, what it is, and its values by name."""

    times_ms: range
    kinds: Sequence[PointKind]
    columns: Columns

    def __len__(self) -> int:
        return len(self.times_ms)

    def points(self) -> list[Point]:
        """The same, one point after the other."""
        names = tuple(self.columns)
        rows = zip(*self.columns.values(), strict=True)
        return [
            Point(time_ms=time_ms, kind=kind, values=dict(zip(names, row, strict=True)))
            for time_ms, kind, row in zip(self.times_ms, self.kinds, rows, strict=True)
        ]


def build_series(
    window: Window,
    *,
    shape: Shape,
    found: Columns,
    seed: Mapping[str, Any] | None = None,
    gaps: Sequence[TimeSpan] = (),
    known: TimeSpan | None = None,
) -> Series:
    """One point a bucket of `window`.

    `found` has at most one row a bucket, in any order: its time `bucket_ms`, the columns of the shape, and in
    `last` the last values of the gauges. `seed` is the last row before the window. A bucket that touches one
    of `gaps` is unknown whatever rows it has; a bucket outside `known`, or before the first row of all, is
    unknown unless it has rows.
    """
    rows = {bucket_ms: row for row, bucket_ms in enumerate(found.get("bucket_ms", ()))}
    lost = _lost_buckets(window, gaps)
    times_ms = range(window.start_ms, window.end_ms, window.step_ms)
    places = _Places(len(rows))
    begun = bool(seed)
    for time_ms in times_ms:
        row = rows.get(time_ms)
        begun = begun or row is not None
        silent = row is None and (not begun or (known is not None and not _holds(known, time_ms, window)))
        if time_ms in lost or silent:
            places.unknown()
        elif row is None:
            places.idle()
        else:
            places.measured(row)
    return Series(times_ms=times_ms, kinds=places.kinds, columns=places.columns(shape, found, seed or {}))


class _Places:
    """Where each point takes its values from, as an index into the columns.

    With n rows, an index below n is a row, n is the seed (the values from before the window), and n + 1 is
    unknown.
    """

    def __init__(self, rows: int) -> None:
        self.kinds: list[PointKind] = []
        self._rows = rows
        self._before, self._nothing = rows, rows + 1
        self._own: list[int] = []
        self._totals: list[int] = []
        self._levels: list[int] = []
        """Indexes into the maxima followed by the last values."""
        self._last = self._before

    def measured(self, row: int) -> None:
        self._last = row
        self._add(PointKind.MEASURED, own=row, level=row)

    def idle(self) -> None:
        self._add(PointKind.CARRIED, own=self._before, level=self._rows + self._last)

    def unknown(self) -> None:
        """Nothing is known here, and nothing from before can be carried past it."""
        self._last = self._nothing
        self._add(PointKind.UNKNOWN, own=self._nothing, level=self._rows + self._nothing)

    def _add(self, kind: PointKind, *, own: int, level: int) -> None:
        self.kinds.append(kind)
        self._own.append(own)
        self._totals.append(self._last)
        self._levels.append(level)

    def columns(self, shape: Shape, found: Columns, seed: Mapping[str, Any]) -> Columns:
        own, totals, levels = _taker(self._own), _taker(self._totals), _taker(self._levels)
        columns: dict[str, Sequence[Value]] = {}
        before = seed.get("last") or [None] * len(shape.gauges)
        for name, *last in zip(shape.gauges, *found.get("last", ()), before, strict=True):
            columns[name] = levels([*found.get(name, ()), *last, None])
        for name in shape.counters:
            columns[name] = own([*found.get(name, ()), 0, None])
        for name in shape.odometers:
            columns[name] = totals([*found.get(name, ()), seed.get(name), None])
        for name in shape.measures:
            columns[name] = own([*found.get(name, ()), None, None])
        return columns


def _taker(places: Sequence[int]) -> Callable[[Sequence[Value]], tuple[Value, ...]]:
    """What takes the values at these places; `itemgetter` of one place alone does not answer a tuple."""
    return itemgetter(*places) if len(places) > 1 else lambda values: tuple(values[place] for place in places)


def _lost_buckets(window: Window, gaps: Sequence[TimeSpan]) -> set[int]:
    return {bucket for gap in gaps for bucket in _buckets_of(window, gap)}


def _buckets_of(window: Window, gap: TimeSpan) -> Iterator[int]:
    first = max(window.bucket_of(gap.start_ms), window.start_ms)
    return iter(range(first, min(max(gap.end_ms, gap.start_ms + 1), window.end_ms), window.step_ms))


def _holds(known: TimeSpan, time_ms: int, window: Window) -> bool:
    """Whether a bucket is wholly after the start of what is known and begins before its end."""
    return known.start_ms <= time_ms + window.step_ms - 1 and time_ms < known.end_ms
