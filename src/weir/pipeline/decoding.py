"""Decodes entries into events with their times; events that cannot be counted are set aside with a reason.

The time of an event is that of its stream id. It is compared with the time when its batch was planned:

- later by more than `FUTURE_MS`: Redis' clock jumped. The event counts at the planning time (clamped).
- older than the finest tier keeps: the event counts in the coarser tiers only (late).
- older than every tier keeps: the event is set aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weir.model.durations import DAY_MS, MINUTE_MS
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.life_rows import broken_bodies, packed_lives
from weir.telemetry.entries import Entries
from weir.telemetry.event_columns import FAULTS, decode
from weir.warehouse.ingest import RejectRow
from weir.warehouse.tables import TierRetention

FUTURE_MS = MINUTE_MS
# A few samples of rejected entries are enough to recognise them, and cannot fill the table.
MAX_SAMPLES = 3
SAMPLE_BYTES = 96
SET_ASIDE, CLAMPED, LATE = "set_aside", "clamped", "late"
FROM_THE_FUTURE = "from the future"
TOO_OLD = "older than every tier"
OLD = "older than the finest tier"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """The greatest ages of an event, for the finest tier and for any tier."""

    late_ms: int
    too_old_ms: int

    @classmethod
    def of(cls, retention: TierRetention) -> Self:
        return cls(late_ms=retention.fine_days * DAY_MS, too_old_ms=retention.hour_days * DAY_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The events of a run of entries, and the notes on events that were corrected or set aside."""

    table: pa.Table
    rejects: tuple[RejectRow, ...]


def events_of(
    definition: MetricDefinition, entries: Entries, *, shard: int, at_ms: int, ages: Ages
) -> Events:
    """The events of a run of entries; `at_ms` is the time when their batch was planned."""
    decoded = decode(definition.kind, entries)
    if definition.holds_lives:
        broken = packed_lives(decoded.events).broken
        if definition.holds_bodies:
            broken |= broken_bodies(decoded.events)
        decoded = decoded.without_lives(broken)
    good = decoded.codes == 0
    notes = _Notes(definition.name, shard, entries)
    for code in np.unique(decoded.codes[~good]):
        notes.add(np.flatnonzero(decoded.codes == code), FAULTS[code], SET_ASIDE)
    kept = np.flatnonzero(good)
    stream_ms = entries.ids[kept, 0]
    future = stream_ms > at_ms + FUTURE_MS
    # An id may claim any 64-bit time; beyond 2**62 the difference would overflow.
    age_ms = np.maximum(at_ms - np.minimum(stream_ms, 2**62).astype(np.int64), 0)
    too_old = age_ms > ages.too_old_ms
    notes.add(kept[future], FROM_THE_FUTURE, CLAMPED)
    notes.add(kept[too_old], TOO_OLD, SET_ASIDE)
    notes.add(kept[(age_ms > ages.late_ms) & ~too_old], OLD, LATE)
    # Clamped to the planning time, which is part of the offset, so that a replay gives the same rows.
    counted_ms = np.where(future, np.uint64(at_ms), stream_ms)
    table = pa.Table.from_batches([decoded.events])
    table = table.append_column("at_ms", pa.array(counted_ms))
    table = table.append_column("shard", pa.array(np.full(len(kept), shard, np.uint16)))
    return Events(table=table.filter(pa.array(~too_old)) if too_old.any() else table, rejects=notes.rows)


class _Notes:
    """Collects the notes on a run of entries."""

    def __init__(self, metric: str, shard: int, entries: Entries) -> None:
        self._metric = metric
        self._shard = shard
        self._entries = entries
        self.rows: tuple[RejectRow, ...] = ()

    def add(self, positions: NDArray[np.int64], reason: str, action: str) -> None:
        if len(positions):
            self.rows += (
                RejectRow(
                    metric=self._metric,
                    shard=self._shard,
                    reason=reason,
                    action=action,
                    events=len(positions),
                    first_id=self._id(positions[0]),
                    last_id=self._id(positions[-1]),
                    samples=self._samples(positions[:MAX_SAMPLES]),
                ),
            )

    def _id(self, position: int) -> str:
        ms, sequence = self._entries.ids[position]
        return f"{ms}-{sequence}"

    def _samples(self, positions: Sequence[int] | NDArray[np.int64]) -> tuple[str, ...]:
        ends = np.cumsum(self._entries.lengths, dtype=np.int64)
        starts = ends - self._entries.lengths
        return tuple(
            self._entries.data[starts[at] : min(ends[at], starts[at] + SAMPLE_BYTES)].hex()
            for at in positions
        )
