"""Turns events of the kinds `life` and `log` into landing rows, one per life, in stream order. Pure.

An event holds the lives of one call. They are taken apart in the read task, which decodes whole runs of them
at once; a view of ClickHouse would cut them up byte by byte. The first row of an event counts the event.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weir.telemetry.life_columns import PackedLives, find_lives, life_columns
from weir.telemetry.log_bodies import body_columns, split_bodies

RECORDS, COUNT, TOTAL, BODIES = "records", "lives", "lives_total", "bodies"


def packed_lives(events: pa.Table | pa.RecordBatch) -> PackedLives:
    """Where the lives of some events are."""
    records = events[RECORDS]
    if isinstance(records, pa.ChunkedArray):
        records = pa.concat_arrays(records.chunks) if records.num_chunks else pa.array([], records.type)
    return find_lives(records, np.asarray(events[COUNT].to_numpy(), np.uint32))


def broken_bodies(events: pa.Table | pa.RecordBatch) -> NDArray[np.bool_]:
    """For each event of the log, whether the bodies of its messages cannot be read."""
    found = zip(events[BODIES].to_pylist(), events[COUNT].to_pylist(), strict=True)
    return np.array([split_bodies(data, count) is None for data, count in found], bool)


def unfolded(events: pa.Table, rows: pa.Table) -> pa.Table:
    """The plain rows of events as one row per life; rows of the log also have the bodies of the messages."""
    found = packed_lives(events)
    # A life is the first of its entry if the life before it belongs to another entry.
    counted = np.diff(found.entries, prepend=-1) > 0
    names = [name for name in rows.column_names if name not in (RECORDS, COUNT, BODIES)]
    of_lives = rows.select(names).take(pa.array(found.entries))
    events_column = pa.array(counted.astype(np.uint64))
    of_lives = of_lives.set_column(names.index("events"), "events", events_column)
    lives = life_columns(found)
    for name in lives.column_names:
        of_lives = of_lives.append_column(name, lives[name])
    if BODIES not in rows.column_names:
        return of_lives
    for name, column in {"number": _numbers(events, found), **_bodies(events)}.items():
        of_lives = of_lives.append_column(name, column)
    return of_lives


def _bodies(events: pa.Table) -> dict[str, pa.Array]:
    return body_columns(events[BODIES].to_pylist(), events[COUNT].to_pylist())


def _numbers(events: pa.Table, found: PackedLives) -> pa.Array:
    """The number of each life in its queue. The odometer of an event is the number of its last life."""
    counts = np.asarray(events[COUNT].to_numpy(), np.int64)
    before = np.asarray(events[TOTAL].to_numpy(), np.int64) - counts
    firsts = np.cumsum(counts) - counts
    within = np.arange(len(found.entries)) - firsts[found.entries]
    return pa.array((before[found.entries] + within + 1).astype(np.uint64))
