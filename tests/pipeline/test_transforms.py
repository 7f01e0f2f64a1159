"""The transforms on tiny frames, without Redis; only the ledger's columns are compared with ClickHouse."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.test_landing import AT_MS, Placed, events, of_few_subjects, table

from weir.model.durations import DAY_MS
from weir.pipeline.decoding import Ages, events_of
from weir.pipeline.definition import QUEUE_METRIC, WORKER_LAG_METRIC, WORKER_METRIC, MetricDefinition
from weir.pipeline.entry_rows import entries_schema, entry_rows
from weir.pipeline.landing import landing_rows
from weir.pipeline.partials import (
    ARROW_SCHEMA,
    SPARK_SCHEMA,
    Partial,
    joined_gaps,
    partials_in,
    record_batch,
)
from weir.pipeline.transforms import (
    bucketed,
    clamped,
    counted,
    landing_batch,
    landing_schema,
    ledger_rows,
    merged_rows,
    partial_rows,
    quarantined,
)
from weir.telemetry.codec import MetricEvent, pack
from weir.telemetry.entries import Entries, entries_of
from weir.telemetry.events import QUEUE
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.ingest import GapRow, RejectRow
from weir.warehouse.tables import LEDGER, TierRetention

AGES = Ages.of(TierRetention())


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
    all_events = table(QUEUE_METRIC, EVENTS)
    parts = [landing_rows(QUEUE_METRIC, part) for part in (all_events.slice(0, cut), all_events.slice(cut))]
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


def test_made_up_numbers_that_no_sum_can_hold_do_not_stop_a_merge(spark: SparkSession) -> None:
    items: list[Placed] = [(0, number, event("a", oldest_age_ms=2**64 - 1, acked=1)) for number in range(2)]
    rows = [landing_rows(QUEUE_METRIC, table(QUEUE_METRIC, [item])) for item in items]
    partials = frame(spark, *map(partial_of, rows))
    (found,) = collected(
        merged_rows(partial_rows(partials, QUEUE_METRIC), QUEUE_METRIC, partitions=1), QUEUE_METRIC
    )
    assert (found["sum_oldest_age_ms"], found["acked"]) == (2**63 - 1, 2)


def test_only_rows_of_cut_streams_of_the_metric_are_merged(spark: SparkSession) -> None:
    rows = landing_rows(QUEUE_METRIC, table(QUEUE_METRIC, EVENTS[:1]))
    partials = frame(spark, partial_of(rows, whole=True), partial_of(rows, metric="worker"), partial_of(rows))
    assert len(collected(partial_rows(partials, QUEUE_METRIC), QUEUE_METRIC)) == 1


def test_partitions_hold_the_same_rows_in_the_same_order_however_many_tasks_read(spark: SparkSession) -> None:
    items: list[Placed] = [(0, number, event(f"q{number % 40}", acked=1)) for number in range(400)]
    all_events = table(QUEUE_METRIC, items)

    def partitions(pieces: int) -> list[list[tuple[Any, ...]]]:
        size = 400 // pieces
        parts = [landing_rows(QUEUE_METRIC, all_events.slice(at, size)) for at in range(0, 400, size)]
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


def run_of(*placed: tuple[int, int, bytes]) -> Entries:
    """Entries by their time, sequence and payload."""
    return entries_of([(b"%d-%d" % (ms, sequence), (b"e", payload)) for ms, sequence, payload in placed])


def entry_frame(spark: SparkSession, definition: MetricDefinition, *runs: tuple[int, Entries]) -> DataFrame:
    """The entries of some shards as a frame of several partitions, in another order than that of the ids."""
    tables = [entry_rows(definition, entries, shard=shard) for shard, entries in runs]
    rows = [row for one in tables for row in one.to_pylist()]
    return spark.createDataFrame(rows[::-1], entries_schema(definition)).repartition(3)


def landed(frame: DataFrame, definition: MetricDefinition) -> list[dict[str, Any]]:
    """The landing rows of a frame of entries."""
    taken = counted(clamped(frame, at_ms=AT_MS), at_ms=AT_MS, ages=AGES)
    return ordered(merged_rows(bucketed(taken, definition), definition, partitions=2), definition)


def ordered(rows: DataFrame, definition: MetricDefinition) -> list[dict[str, Any]]:
    return in_order(landing_batch(rows.toArrow().to_batches(), definition), definition)


def in_order(rows: pa.Table, definition: MetricDefinition) -> list[dict[str, Any]]:
    """Rows by their keys, with their samples in order."""
    names = (*definition.kind.dimensions, "bucket_start", "shard")
    found = rows.select(landing_schema(definition).names).to_pylist()
    for row in found:
        if definition.kind.samples is not None:
            row[definition.kind.samples].sort()
    return sorted(found, key=lambda row: tuple(row[name] for name in names))


GOOD = pack(QUEUE, event("a", acked=1))
TIMES: list[tuple[int, int, bytes]] = [
    (AT_MS - 401 * DAY_MS, 0, GOOD),
    (AT_MS - 3 * DAY_MS, 0, GOOD),
    (AT_MS - 5, 0, GOOD),
    (AT_MS - 5, 1, b"junk"),
    (AT_MS - 4, 0, b"more junk"),
    (AT_MS + 60_000, 0, GOOD),
    (AT_MS + 60_001, 0, GOOD),
]


def test_an_entry_from_the_future_is_clamped_to_the_time_of_planning(spark: SparkSession) -> None:
    frame = clamped(entry_frame(spark, QUEUE_METRIC, (0, run_of(*TIMES))), at_ms=AT_MS)
    found = {(row["stream_ms"], row["stream_sequence"]): row["at_ms"] for row in frame.collect()}
    expected = {(ms, sequence): ms for ms, sequence, _ in TIMES} | {(AT_MS + 60_001, 0): AT_MS}
    assert found == expected


def test_what_is_not_an_event_and_what_no_tier_keeps_is_not_counted(spark: SparkSession) -> None:
    frame = counted(entry_frame(spark, QUEUE_METRIC, (0, run_of(*TIMES))), at_ms=AT_MS, ages=AGES)
    found = sorted((row["stream_ms"], row["stream_sequence"]) for row in frame.collect())
    assert found == [(ms, sequence) for ms, sequence, payload in TIMES[1:] if payload == GOOD]


def test_the_quarantine_notes_every_reason_with_ids_and_samples(spark: SparkSession) -> None:
    entries = run_of(*TIMES)
    notes = quarantined(entry_frame(spark, QUEUE_METRIC, (3, entries)), QUEUE_METRIC, at_ms=AT_MS, ages=AGES)
    found = [{**row.asDict(), "samples": tuple(row["samples"])} for row in notes.collect()]
    expected = events_of(QUEUE_METRIC, entries, shard=3, at_ms=AT_MS, ages=AGES).rejects
    assert len(expected) == 4
    assert sorted(found, key=lambda row: row["reason"]) == sorted(
        map(asdict, expected), key=lambda row: row["reason"]
    )


def test_each_event_is_a_row_in_the_bucket_of_its_time(spark: SparkSession) -> None:
    entries = run_of((AT_MS, 0, GOOD), (AT_MS + 5_000, 7, GOOD))
    timed = clamped(entry_frame(spark, QUEUE_METRIC, (1, entries)), at_ms=AT_MS)
    rows = ordered(bucketed(timed, QUEUE_METRIC, rebuilt=True), QUEUE_METRIC)
    start = AT_MS // 5_000 * 5
    assert [(row["bucket_start"], row["last_sequence"]) for row in rows] == [(start, 0), (start + 5, 7)]
    assert {(row["shard"], row["rebuilt"], row["events"], row["acked"]) for row in rows} == {(1, 1, 1, 1)}


def test_the_ledger_holds_counts_and_odometers_of_all_buckets_without_rebuilt_ones(
    spark: SparkSession,
) -> None:
    rows = landing_rows(QUEUE_METRIC, table(QUEUE_METRIC, EVENTS))
    again = landing_rows(QUEUE_METRIC, table(QUEUE_METRIC, EVENTS), rebuilt=True)
    frame_of_both = partial_rows(frame(spark, partial_of(rows), partial_of(again)), QUEUE_METRIC)
    found = {row["queue"]: row for row in ledger_rows(frame_of_both, QUEUE_METRIC).collect()}
    names = ("events", "enqueued", "acked", "dequeued", "enqueued_total", "last_at")
    assert [found["a"][name] for name in names] == [4, 5, 2, 0, 5, AT_MS + 6_000]
    assert [found["b"][name] for name in names] == [1, 0, 0, 2, 0, AT_MS + 200]
    assert "max_queue_length" not in found["a"].asDict()


def test_the_ledger_has_the_columns_of_its_table(
    spark: SparkSession, warehouse: ClickHouseConnection
) -> None:
    rows = partial_rows(
        frame(spark, partial_of(landing_rows(QUEUE_METRIC, table(QUEUE_METRIC, EVENTS)))), QUEUE_METRIC
    )
    columns = warehouse.rows(
        "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {table:String}",
        {"table": LEDGER},
    )
    assert {*ledger_rows(rows, QUEUE_METRIC).columns} <= {row["name"] for row in columns}


@st.composite
def runs(draw: st.DrawFn, definition: MetricDefinition) -> list[tuple[int, Entries]]:
    """Entries of up to three shards: events of any time, and bytes that are none."""
    times = st.one_of(
        st.integers(AT_MS - 12_000, AT_MS),
        st.sampled_from([AT_MS + 60_000, AT_MS + 60_001, AT_MS - 2 * DAY_MS - 1, AT_MS - 400 * DAY_MS - 1]),
    )
    packed = st.one_of(
        events(definition).map(lambda one: pack(definition.kind, of_few_subjects(one))),
        st.sampled_from([b"", b"junk"]),
    )
    found = []
    for shard in range(draw(st.integers(1, 3))):
        ids = draw(st.lists(st.tuples(times, st.integers(0, 3)), unique=True, min_size=1, max_size=15))
        found.append((shard, run_of(*((ms, sequence, draw(packed)) for ms, sequence in sorted(ids)))))
    return found


@pytest.mark.parametrize(
    "definition", [QUEUE_METRIC, WORKER_METRIC, WORKER_LAG_METRIC], ids=lambda one: one.name
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_a_read_task_adds_up_is_what_the_transforms_say(
    spark: SparkSession, definition: MetricDefinition, data: st.DataObject
) -> None:
    """The same rows, and the same notes on what was not taken as it came, for any entries."""
    found = data.draw(runs(definition))
    each = [events_of(definition, entries, shard=shard, at_ms=AT_MS, ages=AGES) for shard, entries in found]
    rows = landing_rows(definition, pa.concat_tables([one.table for one in each]))
    all_entries = entry_frame(spark, definition, *found).cache()
    assert landed(all_entries, definition) == in_order(rows, definition)
    notes = quarantined(all_entries, definition, at_ms=AT_MS, ages=AGES).collect()
    assert {RejectRow(**{**row.asDict(), "samples": tuple(row["samples"])}) for row in notes} == {
        note for one in each for note in one.rejects
    }
    all_entries.unpersist()
