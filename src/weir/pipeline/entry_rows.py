"""Stream entries as typed rows of Spark, one per entry, where a transform needs each of them. Pure.

A batch adds its entries up where they are read, because a row costs the JVM more than adding it up (0013).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from weir.pipeline.decoding import SAMPLE_BYTES
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.wide_columns import spark_schema, widened
from weir.telemetry.entries import Entries
from weir.telemetry.event_columns import FAULTS, decode
from weir.telemetry.events import TextField


def entry_rows(definition: MetricDefinition, entries: Entries, *, shard: int) -> pa.Table:
    """One row per entry: its id, the columns of its event, why it is not an event, and its first bytes."""
    decoded = decode(definition.kind, entries)
    good = decoded.codes == 0
    # An entry that is not an event takes null for each column of an event.
    at = np.where(good, np.cumsum(good) - 1, 0)
    columns: dict[str, pa.Array] = {
        "stream_ms": pa.array(entries.ids[:, 0]),
        "stream_sequence": pa.array(entries.ids[:, 1]),
        "shard": pa.array(np.full(len(entries), shard, np.uint16)),
        "reason": pa.array([FAULTS[code] for code in decoded.codes], pa.string()),
        "head": pa.array(_heads(entries), pa.binary()),
    }
    taken = pa.array(at, mask=~good)
    columns |= {
        name: decoded.events[name].take(taken) for name in decoded.events.schema.names if name not in columns
    }
    return widened(pa.table(columns)).select(_schema(definition).names)


def entries_schema(definition: MetricDefinition) -> str:
    """The columns of `entry_rows`, as Spark reads them."""
    return spark_schema(_schema(definition))


def _schema(definition: MetricDefinition) -> pa.Schema:
    kind = definition.kind
    columns: dict[str, pa.DataType] = {name: pa.uint64() for name in ("stream_ms", "stream_sequence")}
    columns |= {"shard": pa.uint16(), "reason": pa.string(), "head": pa.binary()}
    columns |= {name: pa.string() for name in kind.dimensions}
    for field in kind.fields_and_texts:
        columns[field.name] = _text_type(field) if isinstance(field, TextField) else pa.uint64()
    if kind.samples is not None:
        columns[kind.samples] = pa.list_(pa.uint32())
    return pa.schema(columns)


def _text_type(text: TextField) -> pa.DataType:
    return pa.binary() if text.binary else pa.string()


def _heads(entries: Entries) -> list[bytes]:
    """The first bytes of each entry, for the notes on entries that were not taken as they came."""
    ends = np.cumsum(entries.lengths, dtype=np.int64)
    starts = ends - entries.lengths
    stops = np.minimum(ends, starts + SAMPLE_BYTES)
    return [entries.data[start:stop] for start, stop in zip(starts, stops, strict=True)]
