"""The transforms of the job: pure functions from data frame to data frame, named for their results.

They begin at three kinds of frames:

- **Entries**, one row per stream entry (`entry_rows`): `clamped`, `quarantined` and `counted` decide
  about each entry, and `bucketed` makes each event a landing row of its own.
  Together they define what a batch means.
- **Landing rows**, typed: `merged_rows` adds up the rows of a subject, bucket and shard, whether one row
  stands for one event or for thousands; `ledger_rows` adds up the buckets too.
- **Partials**, in which read tasks and rebuilds hand over landing rows that they added up in NumPy
  (`partials`, `landing`). That is the fast form of the transforms on entries, with equal rows (0013).
  `partial_rows` unpacks the partials that are not final, and `merged_rows` merges them.

Spark has no unsigned numbers, so typed columns are signed and wide. `landing_batch` turns them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from weir.model.limits import MAX_TIME_MS
from weir.pipeline.decoding import (
    CLAMPED,
    FROM_THE_FUTURE,
    FUTURE_MS,
    LATE,
    MAX_SAMPLES,
    OLD,
    SET_ASIDE,
    TOO_OLD,
    Ages,
)
from weir.pipeline.definition import MetricDefinition, column_of
from weir.pipeline.landing import MAX_SEQUENCE
from weir.pipeline.partials import rows_in
from weir.pipeline.wide_columns import MAX_SIGNED, spark_schema, widened
from weir.telemetry.events import Aggregate


def _sum(name: str) -> Column:
    """A sum that stops at the greatest number; a plain sum would overflow and fail the batch for ever."""
    return fn.coalesce(fn.try_sum(name), fn.lit(MAX_SIGNED))


_AGGREGATES: dict[Aggregate, Callable[[str], Column]] = {
    Aggregate.SUM: _sum,
    Aggregate.MAX: fn.max,
    Aggregate.MIN: fn.min,
}


def clamped(entries: DataFrame, *, at_ms: int) -> DataFrame:
    """The entries with the time `at_ms` at which they count; future ones count at the time of planning."""
    ahead = fn.col("stream_ms") > at_ms + FUTURE_MS
    return entries.withColumn("at_ms", fn.when(ahead, fn.lit(at_ms)).otherwise(fn.col("stream_ms")))


def counted(entries: DataFrame, *, at_ms: int, ages: Ages) -> DataFrame:
    """The entries that are events and that some tier still keeps."""
    verdict = _verdict(at_ms, ages)
    return entries.filter(verdict.isNull() | (verdict["action"] != SET_ASIDE)).drop("reason", "head")


def quarantined(entries: DataFrame, definition: MetricDefinition, *, at_ms: int, ages: Ages) -> DataFrame:
    """The notes on entries that were not taken as they came: one row per shard and reason."""
    noted = entries.withColumn("verdict", _verdict(at_ms, ages)).filter("verdict IS NOT NULL")
    # Structs compare field by field, so the least and the greatest struct have the first and last id.
    found = noted.select(
        "shard", "verdict.reason", "verdict.action",
        fn.struct("stream_ms", "stream_sequence", fn.lower(fn.hex("head")).alias("head")).alias("entry"),
    )  # fmt: skip
    notes = found.groupBy("shard", "reason", "action").agg(
        fn.count("*").alias("events"),
        fn.min("entry").alias("first"),
        fn.max("entry").alias("last"),
        fn.slice(fn.sort_array(fn.collect_list("entry")), 1, MAX_SAMPLES).alias("entries"),
    )
    return notes.select(
        fn.lit(definition.name).alias("metric"), "shard", "reason", "action", "events",
        _id("first").alias("first_id"), _id("last").alias("last_id"), fn.col("entries.head").alias("samples"),
    )  # fmt: skip


def bucketed(events: DataFrame, definition: MetricDefinition, *, rebuilt: bool = False) -> DataFrame:
    """One landing row per event, in the bucket of its time."""
    kind, bucket_ms = definition.kind, definition.bucket_ms
    columns = [fn.col(name) for name in kind.dimensions]
    columns += [
        fn.expr(f"at_ms DIV {bucket_ms} * {bucket_ms} DIV 1000").alias("bucket_start"),
        fn.col("shard"),
        fn.lit(int(rebuilt)).cast("long").alias("rebuilt"),
        fn.least(fn.col("stream_ms"), fn.lit(MAX_TIME_MS)).alias("last_at"),
        fn.least(fn.col("stream_sequence"), fn.lit(MAX_SEQUENCE)).alias("last_sequence"),
        fn.lit(1).cast("long").alias("events"),
    ]
    for field in kind.fields:
        columns += [fn.col(field.name).alias(column_of(field, one)) for one in field.aggregates]
    return events.select(*columns, *([kind.samples] if kind.samples is not None else []))


def partial_rows(partials: DataFrame, definition: MetricDefinition) -> DataFrame:
    """The landing rows of a metric's cut streams, typed."""
    cut = (fn.col("metric") == definition.name) & ~fn.col("whole") & fn.col("rows").isNotNull()
    return partials.filter(cut).select("rows").mapInArrow(_unpacked, spark_schema(landing_schema(definition)))


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


def ledger_rows(rows: DataFrame, definition: MetricDefinition) -> DataFrame:
    """The account of each subject: its events, counts and odometers over all buckets.

    Gauges mean nothing over all time, and a rebuild repeats events that arrived before. So both are left out.
    """
    single = {
        column_of(field, field.aggregates[0]): field.aggregates[0]
        for field in definition.kind.fields
        if len(field.aggregates) == 1
    }
    sums = [_AGGREGATES[one](name).alias(name) for name, one in single.items() if one in _AGGREGATES]
    return (
        rows.filter("rebuilt = 0")
        .groupBy(*definition.kind.dimensions, "shard")
        .agg(fn.sum("events").alias("events"), fn.max("last_at").alias("last_at"), *sums)
    )


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


def _verdict(at_ms: int, ages: Ages) -> Column:
    """The reason and action for an entry that is not taken as it came; null for all others."""

    def verdict(reason: Column, action: str) -> Column:
        return fn.struct(reason.alias("reason"), fn.lit(action).alias("action"))

    ms = fn.col("stream_ms")
    return (
        fn.when(fn.col("reason") != "", verdict(fn.col("reason"), SET_ASIDE))
        .when(ms > at_ms + FUTURE_MS, verdict(fn.lit(FROM_THE_FUTURE), CLAMPED))
        .when(ms < at_ms - ages.too_old_ms, verdict(fn.lit(TOO_OLD), SET_ASIDE))
        .when(ms < at_ms - ages.late_ms, verdict(fn.lit(OLD), LATE))
    )


def _id(entry: str) -> Column:
    return fn.concat_ws("-", fn.col(f"{entry}.stream_ms"), fn.col(f"{entry}.stream_sequence"))


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
            yield from widened(rows_in(content)).to_batches()
