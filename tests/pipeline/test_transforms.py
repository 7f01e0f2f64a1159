"""The transforms on tiny frames: neither Redis nor ClickHouse."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.test_landing import Placed, table

from weir.pipeline.definition import QUEUE_METRIC, WORKER_METRIC, MetricDefinition
from weir.pipeline.landing import landing_rows
from weir.pipeline.partials import (
    ARROW_SCHEMA,
    SPARK_SCHEMA,
    Partial,
    joined_gaps,
    partials_in,
    record_batch,
)
from weir.pipeline.transforms import landing_batch, landing_schema, merged_rows, partial_rows
from weir.telemetry.codec import MetricEvent
from weir.warehouse.ingest import GapRow


def partial_of(rows: pa.Table, *, whole: bool = False, metric: str = "queue") -> Partial:
    return Partial(
        metric=metric, token="t", whole=whole, began_s=1.0, events=rows.num_rows, newest_ms=5,
        rejects=(), gaps=(), rows=rows, files=(),
    )  # fmt: skip


def frame(spark: SparkSession, *partials: Partial) -> DataFrame:
    rows = [row for one in partials for row in record_batch(one).to_pylist()]
    return spark.createDataFrame(rows, SPARK_SCHEMA)


def collected(rows: DataFrame, definition: MetricDefinition) -> list[dict[str, Any]]:
    found: pa.Table = landing_batch(rows.toArrow().to_batches(), definition)
    return found.to_pylist()


def event(queue: str, **values: int) -> MetricEvent:
    waits = (values.get("queue_length", 0),)
    return MetricEvent(dimensions=("o", "p", "e", queue), values=values, samples=waits)


EVENTS: list[Placed] = [
    (0, 100, event("a", enqueued=1, queue_length=7, enqueued_total=1)),
    (0, 200, event("b", dequeued=2, queue_length=3, dequeued_total=2**63 + 5)),
    (0, 300, event("a", enqueued=4, queue_length=9, enqueued_total=5)),
    (0, 400, event("a", acked=1, queue_length=0, enqueued_total=5)),
    (0, 6_000, event("a", acked=1, queue_length=2)),
]


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_rows_of_parts_merge_into_the_rows_of_the_whole(spark: SparkSession, cut: int) -> None:
    """Sums, maxima, minima, last values and samples, wherever the stream is cut and in either order."""
    whole = landing_rows(QUEUE_METRIC, table(QUEUE_METRIC, EVENTS))
    events = table(QUEUE_METRIC, EVENTS)
    parts = [landing_rows(QUEUE_METRIC, part) for part in (events.slice(0, cut), events.slice(cut))]
    expected = sorted(whole.to_pylist(), key=lambda row: (row["queue"], row["bucket_start"]))
    for row in expected:
        row["dequeued_total"] = min(row["dequeued_total"], 2**63 - 1)
        row["wait_ms"] = sorted(row["wait_ms"])
    for ordered in (parts, parts[::-1]):
        partials = frame(spark, *(partial_of(part) for part in ordered))
        merged = merged_rows(partial_rows(partials, QUEUE_METRIC), QUEUE_METRIC, partitions=1)
        found = collected(merged, QUEUE_METRIC)
        for row in found:
            row["wait_ms"] = sorted(row["wait_ms"])
        assert found == [{name: row[name] for name in found[0]} for row in expected]


def test_only_rows_of_cut_streams_of_the_metric_are_merged(spark: SparkSession) -> None:
    rows = landing_rows(QUEUE_METRIC, table(QUEUE_METRIC, EVENTS[:1]))
    partials = frame(spark, partial_of(rows, whole=True), partial_of(rows, metric="worker"), partial_of(rows))
    assert len(collected(partial_rows(partials, QUEUE_METRIC), QUEUE_METRIC)) == 1


def test_partitions_hold_the_same_rows_in_the_same_order_however_many_tasks_read(spark: SparkSession) -> None:
    events = table(QUEUE_METRIC, [(0, number, event(f"q{number % 40}", acked=1)) for number in range(400)])

    def partitions(pieces: int) -> list[list[tuple[Any, ...]]]:
        size = 400 // pieces
        parts = [landing_rows(QUEUE_METRIC, events.slice(at, size)) for at in range(0, 400, size)]
        partials = frame(spark, *map(partial_of, parts)).repartition(pieces)
        merged = merged_rows(partial_rows(partials, QUEUE_METRIC), QUEUE_METRIC, partitions=3)
        rows = merged.select("queue", "bucket_start", "acked", "last_at")
        return [list(map(tuple, part)) for part in rows.rdd.glom().collect()]

    once = partitions(1)
    assert len(once) == 3
    assert all(partitions(pieces) == once for pieces in (2, 4, 8))


@pytest.mark.parametrize("definition", [QUEUE_METRIC, WORKER_METRIC])
def test_the_schema_of_merged_rows_is_that_of_landing_rows(definition: MetricDefinition) -> None:
    event = MetricEvent(dimensions=("a", "b", "c", "d")[: len(definition.kind.dimensions)], values={})
    rows = landing_rows(definition, table(definition, [(0, 1, event)]))
    expected = {field.name: field.type for field in rows.schema}
    assert {field.name: field.type for field in landing_schema(definition)} == expected


def test_a_partial_survives_spark(spark: SparkSession) -> None:
    rows = landing_rows(QUEUE_METRIC, table(QUEUE_METRIC, EVENTS))
    gap = GapRow(metric="queue", shard=1, from_id="1-0", to_id="2-0", reason="r", entries=None)
    mine = Partial(
        **{**{name: getattr(partial_of(rows), name) for name in Partial.__slots__}, "gaps": (gap,)}
    )
    batch = frame(spark, mine).toArrow().cast(ARROW_SCHEMA)
    (carried,) = partials_in(batch.to_batches())
    assert carried.rows.equals(rows)  # type: ignore[union-attr]
    assert (carried.gaps, carried.token, carried.whole) == ((gap,), "t", False)


def test_a_gap_over_several_ranges_is_one_gap() -> None:
    def gap(from_id: str, to_id: str, *, shard: int = 0, entries: int | None = None) -> GapRow:
        return GapRow(metric="queue", shard=shard, from_id=from_id, to_id=to_id, reason="r", entries=entries)

    parts = [
        gap("20-0", "31-0"),
        gap("9-0", "20-0", entries=17),
        gap("40-0", "41-0"),
        gap("31-0", "33-0", shard=1),
    ]
    assert joined_gaps(parts) == [
        gap("9-0", "31-0", entries=17),
        gap("40-0", "41-0"),
        gap("31-0", "33-0", shard=1),
    ]
