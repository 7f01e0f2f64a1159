"""How fast messages arrive and leave right now. Pure.

A mean over minutes still shows a burst long after it ended, and a mean over seconds is noise. So a rate is
taken over the time since it last changed: from the newest bucket back to the first one that differs from
the later ones by more than chance explains (0061).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from weir.model.durations import MINUTE_MS, SECOND_MS
from weir.warehouse.reading.arithmetic import drain_ms
from weir.warehouse.tables import BUCKET_MS

PACE_SPAN_MS = 5 * MINUTE_MS
"""How far back a rate is followed."""
# A bucket that differs by more standard deviations than this ends the steady stretch. Of 2 to 4, tried on
# scripted drains, 2 follows ramps best and is as good as 3 on steady noise (0061).
CHANGE_DEVIATIONS = 2.0
# The buckets of a timer swing from full to empty. So up to this many usual differences are not a change.
_SWING_FACTOR = 2.0
_SWING_BUCKETS = 12
"""The buckets that tell the usual difference: one minute."""
# With fewer buckets than this, a single burst would pass for the usual difference.
_MIN_SWING_BUCKETS = 6
# A newest bucket that is shorter than this holds too few events, so it is joined with the one before it.
_MIN_NEWEST_MS = 2 * SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A count over a stretch of time."""

    count: int
    span_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The rates of one queue right now, per second."""

    arriving: float = 0.0
    leaving: float = 0.0
    """Acked, dead, expired and cancelled messages: all that make the backlog smaller."""
    taken: float = 0.0
    """Handed out."""

    def drain_ms(self, backlog: float) -> float:
        """How long until the backlog is gone at these rates; infinite if it does not shrink."""
        return drain_ms(backlog=backlog, arrived=self.arriving, left=self.leaving, span_ms=SECOND_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceBuckets:
    """The newest buckets of a queue that have rows, in any order."""

    starts_ms: Sequence[int]
    arrived: Sequence[int]
    left: Sequence[int]
    taken: Sequence[int]

    def pace(
        self, *, end_ms: int, late: tuple[int, int, int] = (0, 0, 0), late_from_ms: int | None = None
    ) -> Pace:
        """The rates at `end_ms`.

        `late` counts messages that arrived, left and were taken since `late_from_ms` and have not landed.
        """
        open_ms = end_ms - 1 if late_from_ms is None else min(late_from_ms, end_ms - 1)
        open_ms -= open_ms % BUCKET_MS

        def rate(counts: Sequence[int], besides: int) -> float:
            found = dict(zip(self.starts_ms, counts, strict=True))
            return current_rate(chunks_of(found, besides=besides, open_ms=open_ms, end_ms=end_ms))

        columns = (self.arrived, self.left, self.taken)
        arriving, leaving, taken = (rate(*pair) for pair in zip(columns, late, strict=True))
        return Pace(arriving=arriving, leaving=leaving, taken=taken)


def chunks_of(found: dict[int, int], *, besides: int, open_ms: int, end_ms: int) -> list[Chunk]:
    """Chunks, newest first: one from `open_ms` to the end, then one per bucket back to the first."""
    if not found:
        return [Chunk(count=besides, span_ms=max(end_ms - open_ms, 1))]
    newest = besides + sum(count for start_ms, count in found.items() if start_ms >= open_ms)
    first_ms = max(min(found), end_ms - PACE_SPAN_MS)
    earlier = range(open_ms - BUCKET_MS, first_ms - 1, -BUCKET_MS)
    return [
        Chunk(count=newest, span_ms=max(end_ms - open_ms, 1)),
        *(Chunk(count=found.get(start_ms, 0), span_ms=BUCKET_MS) for start_ms in earlier),
    ]


def current_rate(chunks: Sequence[Chunk]) -> float:
    """The rate per second over the newest chunks, back to where it last changed."""
    chunks = _with_a_whole_newest(chunks)
    if not chunks:
        return 0.0
    swing = _usual_difference(chunks[:_SWING_BUCKETS])
    count, span_ms = chunks[0].count, chunks[0].span_ms
    for chunk in chunks[1:]:
        if _differs(chunk, count, span_ms, swing=swing):
            break
        count, span_ms = count + chunk.count, span_ms + chunk.span_ms
    return count * SECOND_MS / span_ms


def _with_a_whole_newest(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
    if len(chunks) < 2 or chunks[0].span_ms >= _MIN_NEWEST_MS:
        return chunks
    newest, second, *rest = chunks
    both = Chunk(count=newest.count + second.count, span_ms=newest.span_ms + second.span_ms)
    return [both, *rest]


def _usual_difference(chunks: Sequence[Chunk]) -> float:
    """The median difference between the rates of neighbours, per millisecond; 0 if there are too few."""
    if len(chunks) < _MIN_SWING_BUCKETS:
        return 0.0
    rates = [chunk.count / chunk.span_ms for chunk in chunks]
    differences = sorted(abs(left - right) for left, right in pairwise(rates))
    return differences[len(differences) // 2]


def _differs(chunk: Chunk, count: int, span_ms: int, *, swing: float) -> bool:
    """Whether a chunk differs from the later ones by more than chance and the usual difference explain."""
    expected = count * chunk.span_ms / span_ms
    together = (count + chunk.count) / (span_ms + chunk.span_ms)
    # The variance of a difference of two Poisson counts, one of them scaled to the other's time.
    variance = max(together * chunk.span_ms * (1 + chunk.span_ms / span_ms), 1.0)
    tolerance = max(CHANGE_DEVIATIONS * math.sqrt(variance), _SWING_FACTOR * swing * chunk.span_ms)
    return abs(chunk.count - expected) > tolerance
