"""The transforms of the job: pure functions from data frame to data frame, named for their results.

A read task has decoded, clamped, set aside and bucketed its events already (`partials`). Where it read whole
streams, its landing rows are final. Where several tasks share a stream, their rows meet here: `partial_rows`
unpacks them into typed columns, and `merged_rows` adds up those of the same subject, bucket and shard.

Spark has no unsigned numbers, so typed columns are signed and wide. `landing_batch` turns them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from weir.pipeline.definition import MetricDefinition, column_of
from weir.pipeline.partials import rows_in
from weir.telemetry.events import Aggregate

_AGGREGATES = {Aggregate.SUM: fn.sum, Aggregate.MAX: fn.max, Aggregate.MIN: fn.min}
_MAX_SIGNED = np.uint64(2**63 - 1)


def partial_rows(partials: DataFrame, definition: MetricDefinition) -> DataFrame:
    """The landing rows of a metric's cut streams, typed."""
    cut = (fn.col("metric") == definition.name) & ~fn.col("whole") & fn.col("rows").isNotNull()
    return partials.filter(cut).select("rows").mapInArrow(_unpacked, _spark_schema(definition))


def merged_rows(rows: DataFrame, definition: MetricDefinition, *, partitions: int) -> DataFrame:
    """One row per subject, bucket and shard, in order of these within each partition.

    Equal rows come out in equal partitions and in the same order, however they were put together: the number
    of partitions is given, and the rows are sorted. So their blocks can have tokens.
    """
    keys = _keys(definition)
    # All rows of a key are in one partition before the grouping, so it needs no second shuffle.
    grouped = rows.repartition(partitions, *keys).groupBy(*keys).agg(*_aggregates(definition))
    newest = [f"newest.{name} AS {name}" for name in ("last_at", "last_sequence", *_lasts(definition))]
    kept = [name for name in grouped.columns if name != "newest"]
    return grouped.selectExpr(*kept, *newest).sortWithinPartitions(*keys)


def landing_batch(batches: Iterable[pa.RecordBatch], definition: MetricDefinition) -> pa.Table:
    """Typed rows as the landing table takes them."""
    schema = landing_schema(definition)
    found = [batch.select(schema.names) for batch in batches]
    table = pa.Table.from_batches(found) if found else schema.empty_table()
    return table.cast(schema)


def landing_schema(definition: MetricDefinition) -> pa.Schema:
    """The columns of landing rows that are sums."""
    kind = definition.kind
    columns: dict[str, pa.DataType] = {name: pa.string() for name in kind.dimensions}
    columns |= {"bucket_start": pa.uint32(), "shard": pa.uint16(), "rebuilt": pa.uint8()}
    columns |= {"last_at": pa.timestamp("ms", tz="UTC"), "last_sequence": pa.uint32(), "events": pa.uint64()}
    for field in kind.fields:
        for aggregate in field.aggregates:
            width = 8 if aggregate is Aggregate.SUM else field.width
            columns[column_of(field, aggregate)] = pa.from_numpy_dtype(np.dtype(f"u{width}"))
    if kind.samples is not None:
        columns[kind.samples] = pa.list_(pa.uint32())
    return pa.schema(columns)


def _keys(definition: MetricDefinition) -> tuple[str, ...]:
    return (*definition.kind.dimensions, "bucket_start", "shard", "rebuilt")


def _lasts(definition: MetricDefinition) -> list[str]:
    return [
        column_of(field, Aggregate.LAST)
        for field in definition.kind.fields
        if Aggregate.LAST in field.aggregates
    ]


def _aggregates(definition: MetricDefinition) -> list[Column]:
    kind = definition.kind
    # Structs compare field by field, so the greatest one is that of the greatest stream id.
    found = [
        fn.sum("events").alias("events"),
        fn.max(fn.struct("last_at", "last_sequence", *_lasts(definition))).alias("newest"),
    ]
    for field in kind.fields:
        for aggregate in field.aggregates:
            if aggregate in _AGGREGATES:
                name = column_of(field, aggregate)
                found.append(_AGGREGATES[aggregate](name).alias(name))
    if kind.samples is not None:
        found.append(fn.flatten(fn.collect_list(kind.samples)).alias(kind.samples))
    return found


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for content in batch.column("rows").to_pylist():
            table = rows_in(content)
            widened = {name: _widened(table[name]) for name in table.column_names}
            yield from pa.table(widened).combine_chunks().to_batches()


def _arrow_schema(definition: MetricDefinition) -> pa.Schema:
    return pa.schema([(column.name, _wide_type(column.type)) for column in landing_schema(definition)])


def _spark_schema(definition: MetricDefinition) -> str:
    names = {pa.string(): "string", pa.int64(): "long", pa.list_(pa.int64()): "array<long>"}
    return ", ".join(f"{column.name} {names[column.type]}" for column in _arrow_schema(definition))


def _wide_type(narrow: pa.DataType) -> pa.DataType:
    if pa.types.is_list(narrow):
        return pa.list_(pa.int64())
    return narrow if pa.types.is_string(narrow) else pa.int64()


def _widened(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_uint64(column.type):
        # Only an event that was made up has larger numbers.
        column = pa.chunked_array([pa.array(np.minimum(column.to_numpy(), _MAX_SIGNED))])
    return column.cast(_wide_type(column.type))
