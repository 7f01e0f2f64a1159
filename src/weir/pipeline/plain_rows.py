"""Turns events into landing rows that are not summed, in stream order: one per event, or per life. Pure.

A row is known by its shard and stream id, so a rebuild or a replay gives exactly the same rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from weir.pipeline.definition import MetricDefinition
from weir.pipeline.landing import in_stream_order, landing_rows, stored_at, stored_sequence
from weir.pipeline.life_rows import unfolded


def rows_of(definition: MetricDefinition, events: pa.Table, *, rebuilt: bool = False) -> pa.Table:
    """The landing rows of a metric: plain rows or sums, as its definition says."""
    rows = plain_rows if definition.plain else landing_rows
    return rows(definition, in_stream_order(events), rebuilt=rebuilt)


def plain_rows(definition: MetricDefinition, events: pa.Table, *, rebuilt: bool = False) -> pa.Table:
    """One row per event of `events`, which come in stream order within each shard and keep it."""
    kind = definition.kind
    count = events.num_rows
    buckets = np.asarray(events["at_ms"].to_numpy(), np.uint64) // definition.bucket_ms
    columns: dict[str, pa.Array] = {name: events[name].cast(pa.string()) for name in kind.dimensions}
    columns["bucket_start"] = pa.array((buckets * definition.bucket_ms // 1_000).astype(np.uint32))
    columns["shard"] = events["shard"].cast(pa.uint16())
    columns["rebuilt"] = pa.array(np.full(count, rebuilt, np.uint8))
    columns["last_at"] = stored_at(np.asarray(events["stream_ms"].to_numpy(), np.uint64))
    columns["last_sequence"] = stored_sequence(np.asarray(events["stream_sequence"].to_numpy(), np.uint64))
    columns["events"] = pa.array(np.ones(count, np.uint64))
    columns |= {field.name: events[field.name] for field in kind.fields_and_texts}
    rows = pa.table(columns)
    return unfolded(events, rows) if definition.holds_lives else rows
