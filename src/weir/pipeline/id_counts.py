"""Estimates how many entries of a stream lie up to an id, from a few hundred probes of its ids.

Redis cannot tell the id of the n-th entry. But the entries of one millisecond are numbered, so the last id of
a millisecond tells how many it has. Two kinds of probes use that.

- The neighbours of a time: the last id at or before it and the first id after it. They bound a stretch
  that is known in full: the entries of its first millisecond, then a pause. The next probes fall between the
  known stretches. So a long silence is found with one probe, and a burst behind it with the next ones.
- A window of a few milliseconds: all its entries are counted. Windows spread evenly over a range give its
  density, once the neighbours have told its rough shape.

The result is an estimate: the count of a range with short bursts is within about 6 %. A burst that takes less
than a hundredth of the time can be missed. The length of the stream, which Redis knows, limits that error.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from random import Random
from typing import Protocol

from weir.telemetry.stream_ids import StreamId

NEIGHBOURS = 64
"""Probes per round of neighbours, which finds out where to look."""
WINDOWS = 256
"""Windows per round of the final estimate. A probe costs about 20 µs, and a batch about a second."""
WINDOW_ENTRIES = 8
"""Entries that a window should hold: with fewer, short bursts make the estimate rough."""
MAX_WINDOW_ENTRIES = 8 * WINDOW_ENTRIES
ROUNDS = 6
"""Rounds of neighbours at most. Each can shorten the time to look at by the factor `NARROWING`."""
NARROWING = 16
MAX_SCALE = 2.0
"""How far an estimate is scaled towards the stream's length, which may include entries beyond the range."""


class IdProbe(Protocol):
    """Looks up single ids of one stream."""

    def neighbours(self, times_ms: Sequence[int]) -> Sequence[tuple[StreamId | None, StreamId | None]]:
        """For each time, the last id in this millisecond or before it, and the first id after it."""

    def windows(self, spans_ms: Sequence[tuple[int, int]], *, limit: int) -> Sequence[Sequence[StreamId]]:
        """For each span, the ids from its first to before its second millisecond, latest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A span of time and its entries, which are all in the first millisecond, or evenly spread."""

    begin_ms: int
    end_ms: int
    entries: float
    first_sequence: int | None = None
    """The sequence of the first entry, if all are in the first millisecond."""

    @property
    def density(self) -> float:
        return self.entries / (self.end_ms - self.begin_ms)


class IdCounts:
    """The entries of a range of ids, as pieces in order of time."""

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self._pieces = sorted(pieces, key=lambda piece: piece.begin_ms)
        self._sums = list(accumulate(piece.entries for piece in self._pieces))

    @property
    def total(self) -> float:
        return self._sums[-1] if self._sums else 0.0

    def last_within(self, entries: float) -> StreamId:
        """An id up to which there are about this many entries; no entry needs to have this id."""
        at = min(bisect_left(self._sums, entries), len(self._pieces) - 1)
        piece, left = self._pieces[at], entries - (self._sums[at - 1] if at else 0)
        if piece.first_sequence is not None:
            return piece.begin_ms, piece.first_sequence + max(round(left), 1) - 1
        share = left / piece.entries if piece.entries else 1.0
        return piece.begin_ms + int(share * (piece.end_ms - piece.begin_ms)), 0


def count_ids(probe: IdProbe, *, after: StreamId, last: StreamId, length: int, wanted: int) -> IdCounts:
    """Estimate the entries after `after` up to `last`, or only the first ones, with a margin over `wanted`.

    `length` is the number of entries of the range, or more if entries follow it.
    """
    search = _Search(probe, after=after, last=last, length=length)
    for _ in range(ROUNDS):
        counts = search.look(NEIGHBOURS)
        if counts.total > 3 * wanted and search.narrow(counts.last_within(2 * wanted)[0]):
            continue
        if 2 * counts.total >= min(length, wanted) and not search.is_full_of_pauses:
            break
        if 2 * counts.total < wanted:
            search.widen()
    for _ in range(ROUNDS):
        counts = search.measure(WINDOWS)
        if counts.total < wanted and not search.is_whole:
            search.widen()
        # Windows beyond the wanted entries tell nothing about these, so look only a little further.
        elif not search.narrow(after[0] + (counts.last_within(wanted)[0] - after[0]) * 3 // 2):
            break
    return counts


class _Search:
    def __init__(self, probe: IdProbe, *, after: StreamId, last: StreamId, length: int) -> None:
        self._probe = probe
        self._after = after
        self._last = last
        self._length = length
        self._begin_ms = after[0]
        self._end_ms = last[0]
        self._known: dict[int, _Piece] = {}
        self._density = 1.0
        # Random, because even distances could coincide with a regular pulse. Seeded, so that the same stream
        # gives the same answer.
        self._random = Random(after[0])

    @property
    def unknown(self) -> _Times:
        """The time that no known stretch covers."""
        return self._without(self._known.values())

    @property
    def is_whole(self) -> bool:
        return self._end_ms == self._last[0]

    @property
    def is_full_of_pauses(self) -> bool:
        """Known stretches cover much of the time, and another round would find more of them."""
        span_ms, unknown_ms = self._end_ms - self._begin_ms, self.unknown.total_ms
        return unknown_ms < span_ms * 2 // 3 and unknown_ms > NEIGHBOURS

    def widen(self) -> None:
        """Look at twice the time from now on."""
        self._end_ms = min(2 * self._end_ms - self._begin_ms, self._last[0])

    def narrow(self, end_ms: int) -> bool:
        """Look only before `end_ms` from now on; False if that would not shorten the time by a third."""
        # An estimate from few probes can be far off, so one round may cut off only a bounded part.
        least = self._begin_ms + (self._end_ms - self._begin_ms) // NARROWING
        end_ms = max(end_ms, least, self._begin_ms + 1)
        if 3 * (end_ms - self._begin_ms) > 2 * (self._end_ms - self._begin_ms):
            return False
        self._end_ms = end_ms
        self._known = {begin: piece for begin, piece in self._known.items() if begin < end_ms}
        return True

    def look(self, probes: int) -> IdCounts:
        """Find stretches in the unknown time, and estimate the entries of the range."""
        unknown = self.unknown
        strips = self._strips(unknown, probes)
        times = [unknown.at(self._random.randrange(low, high)) for low, high in strips]
        found = [
            self._stretch(at_ms, *near)
            for at_ms, near in zip(times, self._probe.neighbours(times), strict=True)
        ]
        before = list(self._known.values())
        self._known |= {piece.begin_ms: piece for piece in found}
        spread = _spread(unknown, strips, [piece.density for piece in found])
        if unknown.total_ms:
            self._density = sum(piece.entries for piece in spread) / unknown.total_ms
        return self._counts(before, spread)

    def measure(self, windows: int) -> IdCounts:
        """Count entries in windows of the range, without its pauses."""
        width_ms = max(round(WINDOW_ENTRIES / max(self._density, 1e-6)), 1)
        pauses = [piece for piece in self._known.values() if piece.end_ms - piece.begin_ms > 2 * width_ms]
        rest = self._without(pauses)
        strips = self._strips(rest, windows)
        spans = []
        for low, high in strips:
            begin_ms = rest.at(self._random.randrange(low, max(high - width_ms, low) + 1))
            spans.append((begin_ms, min(begin_ms + width_ms, rest.end_of(begin_ms))))
        found = self._probe.windows(spans, limit=MAX_WINDOW_ENTRIES)
        densities = [self._window_density(span, ids) for span, ids in zip(spans, found, strict=True)]
        return self._counts(pauses, _spread(rest, strips, densities))

    def _counts(self, known: Sequence[_Piece], spread: Sequence[_Piece]) -> IdCounts:
        """Known and estimated pieces together; for the whole range, its length scales the estimates."""
        if not self.is_whole:
            return IdCounts([*known, *spread])
        known = [*known, self._stretch(self._last[0], self._last, None)]
        estimated = sum(piece.entries for piece in spread)
        scale = (self._length - sum(piece.entries for piece in known)) / estimated if estimated else 1.0
        scale = min(max(scale, 1 / MAX_SCALE), MAX_SCALE)
        scaled = [
            _Piece(begin_ms=piece.begin_ms, end_ms=piece.end_ms, entries=piece.entries * scale)
            for piece in spread
        ]
        return IdCounts([*known, *scaled])

    def _without(self, pieces: Iterable[_Piece]) -> _Times:
        found, at = [], self._begin_ms
        for piece in sorted(pieces, key=lambda piece: piece.begin_ms):
            if piece.begin_ms > at:
                found.append((at, piece.begin_ms))
            at = max(at, piece.end_ms)
        if at < self._end_ms:
            found.append((at, self._end_ms))
        return _Times(found)

    def _strips(self, times: _Times, count: int) -> list[tuple[int, int]]:
        """Strips of about equal length, and ever shorter ones at the beginning."""
        count = min(count, times.total_ms)
        if not count:
            return []
        bounds = {index * times.total_ms // count for index in range(count + 1)}
        # A batch often begins within the burst that ended the one before it.
        first = times.total_ms // count
        while first > 1:
            bounds.add(first := first // 2)
        return list(pairwise(sorted(bounds)))

    def _stretch(self, at_ms: int, until: StreamId | None, after: StreamId | None) -> _Piece:
        """The stretch that the neighbours of a time bound."""
        end_ms = max(after[0] if after is not None else self._last[0], at_ms + 1)
        if until is None or until[0] < self._begin_ms:
            return _Piece(begin_ms=self._begin_ms, end_ms=end_ms, entries=0)
        first = self._first_sequence(until[0])
        return _Piece(
            begin_ms=until[0], end_ms=end_ms, entries=max(until[1] + 1 - first, 0), first_sequence=first
        )

    def _window_density(self, span_ms: tuple[int, int], ids: Sequence[StreamId]) -> float:
        last_of: dict[int, int] = {}
        for ms, sequence in ids:
            last_of.setdefault(ms, sequence)
        entries = sum(max(last + 1 - self._first_sequence(ms), 0) for ms, last in last_of.items())
        # The ids come latest first, and a full reply may lack the earliest milliseconds.
        begin_ms = min(last_of) if len(ids) == MAX_WINDOW_ENTRIES else span_ms[0]
        return entries / (span_ms[1] - begin_ms)

    def _first_sequence(self, ms: int) -> int:
        """The sequence of the first entry of a millisecond that belongs to the range."""
        return self._after[1] + 1 if ms == self._after[0] else 0


class _Times:
    """Some intervals of time, as if they followed each other without a pause."""

    def __init__(self, intervals: Sequence[tuple[int, int]]) -> None:
        self._intervals = intervals
        self._ends = list(accumulate(end - begin for begin, end in intervals))

    @property
    def total_ms(self) -> int:
        return self._ends[-1] if self._ends else 0

    def at(self, position: int) -> int:
        """The time at a position."""
        index = bisect_right(self._ends, position)
        return self._intervals[index][1] - (self._ends[index] - position)

    def end_of(self, at_ms: int) -> int:
        """The end of the interval that holds a time."""
        return self._intervals[bisect_right(self._intervals, (at_ms, math.inf)) - 1][1]

    def between(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The parts of the intervals from one position to before another."""
        index = bisect_right(self._ends, low)
        while low < high:
            end_ms, end = self._intervals[index][1], self._ends[index]
            until = min(end, high)
            yield end_ms - (end - low), end_ms - (end - until)
            low, index = until, index + 1


def _spread(times: _Times, strips: Sequence[tuple[int, int]], densities: Sequence[float]) -> list[_Piece]:
    """The strips as pieces, each with the entries that its density gives."""
    return [
        _Piece(begin_ms=begin, end_ms=end, entries=(end - begin) * density)
        for (low, high), density in zip(strips, densities, strict=True)
        for begin, end in times.between(low, high)
    ]
