"""Adds events up into landing rows, one per subject, bucket and shard. Pure; the rebuild uses it too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weir.model.limits import MAX_TIME_MS
from weir.pipeline.definition import MetricDefinition, column_of
from weir.telemetry.events import Aggregate, Field

_SUM_TYPES = {Aggregate.SUM: np.uint64}
_REDUCTIONS = {Aggregate.SUM: np.add, Aggregate.MAX: np.maximum, Aggregate.MIN: np.minimum}
# The columns in ClickHouse are narrower than a stream id. Greater numbers are stored as these limits.
MAX_SEQUENCE = 2**32 - 1
_MAX_STORED_MS = np.uint64(MAX_TIME_MS)


def in_stream_order(events: pa.Table) -> pa.Table:
    """The events sorted by shard and stream id, however they were put together."""
    shards, ms, sequences = (_numbers(events, name) for name in ("shard", "stream_ms", "stream_sequence"))
    same_shard, same_ms = shards[1:] == shards[:-1], ms[1:] == ms[:-1]
    later = (ms[1:] > ms[:-1]) | (same_ms & (sequences[1:] >= sequences[:-1]))
    # A read task delivers its events in order, and checking costs less than sorting.
    if bool(((shards[1:] > shards[:-1]) | (same_shard & later)).all()):
        return events
    return events.take(pa.array(np.lexsort((sequences, ms, shards))))


def landing_rows(definition: MetricDefinition, events: pa.Table, *, rebuilt: bool = False) -> pa.Table:
    """Partial sums of `events`, which come in stream order within each shard (`in_stream_order`).

    Events carry `shard`, `stream_ms`, `stream_sequence`, `at_ms` and the columns of their kind.
    """
    kind = definition.kind
    groups = _Groups(_group_codes(definition, events))
    buckets = _numbers(events, "at_ms")[groups.lasts] // definition.bucket_ms * definition.bucket_ms
    columns: dict[str, pa.Array] = {
        name: events[name].combine_chunks().take(pa.array(groups.lasts)).cast(pa.string())
        for name in kind.dimensions
    }
    columns["bucket_start"] = pa.array((buckets // 1_000).astype(np.uint32))
    columns["shard"] = pa.array(_numbers(events, "shard")[groups.lasts].astype(np.uint16))
    columns["rebuilt"] = pa.array(np.full(len(groups), rebuilt, np.uint8))
    columns["last_at"] = stored_at(_numbers(events, "stream_ms")[groups.lasts])
    columns["last_sequence"] = stored_sequence(_numbers(events, "stream_sequence")[groups.lasts])
    columns["events"] = pa.array(groups.sizes.astype(np.uint64))
    for field in kind.fields:
        columns |= _field_columns(field, events, groups)
    if kind.samples is not None:
        columns[kind.samples] = _gathered(events[kind.samples].combine_chunks(), groups)
    return pa.table(columns)


def joined_rows(definition: MetricDefinition, rows: pa.Table) -> pa.Table:
    """Landing rows of several tasks, added up to one row per subject, bucket and shard.

    It is the fast form of `transforms.merged_rows` for few rows.
    """
    kind = definition.kind
    newest_last = np.lexsort((_numbers(rows, "last_sequence"), rows["last_at"].cast(pa.int64()).to_numpy()))
    rows = rows.take(pa.array(newest_last)).combine_chunks()
    groups = _Groups(_codes([_numbers(rows, "shard"), _numbers(rows, "bucket_start")], rows, definition))
    columns: dict[str, pa.Array] = {
        name: rows[name].combine_chunks().take(pa.array(groups.lasts)) for name in rows.column_names
    }
    columns["events"] = _reduced(rows["events"].to_numpy(), Aggregate.SUM, groups)
    for field in kind.fields:
        for aggregate in field.aggregates:
            name = column_of(field, aggregate)
            columns[name] = _reduced(rows[name].to_numpy(), aggregate, groups)
    if kind.samples is not None:
        columns[kind.samples] = _gathered(rows[kind.samples].combine_chunks(), groups)
    return pa.table(columns)


def stored_at(stream_ms: NDArray[np.uint64]) -> pa.Array:
    """The times of stream ids as ClickHouse can hold them."""
    return pa.array(np.minimum(stream_ms, _MAX_STORED_MS).astype(np.int64)).cast(pa.timestamp("ms", tz="UTC"))


def stored_sequence(sequences: NDArray[np.uint64]) -> pa.Array:
    """The sequences of stream ids as ClickHouse can hold them."""
    return pa.array(np.minimum(sequences, np.uint64(MAX_SEQUENCE)).astype(np.uint32))


class _Groups:
    """Events sorted by group. The sort is stable, so the last event of a group is its newest."""

    def __init__(self, codes: NDArray[np.int64]) -> None:
        self.order = np.argsort(codes, kind="stable")
        ordered = codes[self.order]
        self.starts = np.flatnonzero(
            np.concatenate(([True], ordered[1:] != ordered[:-1])) if len(codes) else []
        )
        ends = np.append(self.starts[1:], len(codes)) if len(self.starts) else self.starts
        self.sizes = ends - self.starts
        self.lasts = self.order[ends - 1] if len(ends) else ends

    def __len__(self) -> int:
        return len(self.starts)


def _group_codes(definition: MetricDefinition, events: pa.Table) -> NDArray[np.int64]:
    """One number per event, equal for events of the same shard, subject and bucket."""
    buckets = _numbers(events, "at_ms") // definition.bucket_ms
    return _codes([_numbers(events, "shard"), buckets], events, definition)


def _codes(
    numbers: Sequence[NDArray[np.uint64]], rows: pa.Table, definition: MetricDefinition
) -> NDArray[np.int64]:
    """One number per row, equal for rows with the same numbers and the same subject."""
    parts = [part.astype(np.int64) for part in numbers]
    parts += [_dictionary_codes(rows[name]) for name in definition.kind.dimensions]
    codes = np.zeros(rows.num_rows, np.int64)
    for part in parts:
        # Each part becomes a digit of a number in a mixed base, so that one sort groups by all of them.
        low, high = (int(part.min()), int(part.max())) if len(part) else (0, 0)
        codes = _renumbered(codes, high - low + 1) * (high - low + 1) + (part - low)
    return codes


def _renumbered(codes: NDArray[np.int64], factor: int) -> NDArray[np.int64]:
    """The same groups with smaller numbers, if multiplying by `factor` could overflow."""
    if len(codes) and int(codes.max()) >= 2**62 // factor:
        return np.unique(codes, return_inverse=True)[1]
    return codes


def _dictionary_codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """A number for each text of a column."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    unified = column.unify_dictionaries().combine_chunks()
    return np.asarray(unified.indices.to_numpy(zero_copy_only=False), np.int64)


def _numbers(events: pa.Table, name: str) -> NDArray[np.uint64]:
    return np.asarray(events[name].to_numpy(), np.uint64)


def _field_columns(field: Field, events: pa.Table, groups: _Groups) -> dict[str, pa.Array]:
    if not field.aggregates:
        return {}
    values = events[field.name].to_numpy()
    ordered = values[groups.order]
    return {
        column_of(field, aggregate): _reduced(values, aggregate, groups, ordered=ordered)
        for aggregate in field.aggregates
    }


def _reduced(
    values: NDArray[Any], aggregate: Aggregate, groups: _Groups, *, ordered: NDArray[Any] | None = None
) -> pa.Array:
    """One value per group; `ordered` are the values in the order of the groups, if they are known."""
    if aggregate is Aggregate.LAST:
        return pa.array(values[groups.lasts])
    ordered = values[groups.order] if ordered is None else ordered
    kept = ordered.astype(_SUM_TYPES.get(aggregate, ordered.dtype), copy=False)
    return pa.array(_REDUCTIONS[aggregate].reduceat(kept, groups.starts) if len(groups) else kept)


def _gathered(samples: pa.ListArray, groups: _Groups) -> pa.ListArray:
    """The samples of all events of a group in one list."""
    offsets = samples.offsets.to_numpy().astype(np.int64)
    counts = np.diff(offsets)[groups.order]
    total = int(counts.sum())
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(offsets[:-1][groups.order], counts) + within
    values = samples.values.to_numpy()[at] if total else np.zeros(0, np.uint32)
    of_group = np.add.reduceat(counts, groups.starts) if len(groups) else counts
    ends = np.concatenate(([0], np.cumsum(of_group))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(values.astype(np.uint32)))
