"""Turns events of the kind `life` into landing rows, one per life, in stream order. Pure.

An event holds the lives of one call. They are taken apart in the read task, which decodes whole runs of them
at once; a view of ClickHouse would cut them up byte by byte. The first row of an event counts the event.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from weir.telemetry.life_columns import PackedLives, find_lives, life_columns

RECORDS, COUNT, TOTAL = "records", "lives", "lives_total"


def packed_lives(events: pa.Table | pa.RecordBatch) -> PackedLives:
    """Where the lives of some events are."""
    records = events[RECORDS]
    if isinstance(records, pa.ChunkedArray):
        records = pa.concat_arrays(records.chunks) if records.num_chunks else pa.array([], records.type)
    return find_lives(records, np.asarray(events[COUNT].to_numpy(), np.uint32))


def unfolded(events: pa.Table, rows: pa.Table) -> pa.Table:
    """The plain rows of events as one row per life."""
    found = packed_lives(events)
    # The first life of an entry is the one that differs from the life before.
    counted = np.diff(found.entries, prepend=-1) > 0
    names = [name for name in rows.column_names if name not in (RECORDS, COUNT)]
    of_lives = rows.select(names).take(pa.array(found.entries))
    events_column = pa.array(counted.astype(np.uint64))
    of_lives = of_lives.set_column(names.index("events"), "events", events_column)
    lives = life_columns(found)
    for name in lives.column_names:
        of_lives = of_lives.append_column(name, lives[name])
    return of_lives
