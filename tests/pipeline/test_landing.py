"""Adding events up, against a model that does it one at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.pipeline.decoding import Ages, events_of
from weir.pipeline.definition import QUEUE_METRIC, WORKER_METRIC, MetricDefinition, column_of
from weir.pipeline.landing import joined_rows, landing_rows
from weir.telemetry.codec import MetricEvent, pack
from weir.telemetry.entries import entries_of
from weir.telemetry.events import QUEUE, WORKER, Aggregate
from weir.warehouse.tables import TierRetention

AT_MS = 1_763_251_203_000
Placed = tuple[int, int, MetricEvent]
"""A shard, milliseconds after `AT_MS`, and what happened."""


def table(definition: MetricDefinition, placed: list[Placed]) -> pa.Table:
    found = []
    for shard in {shard for shard, _, _ in placed}:
        mine = sorted((item for item in placed if item[0] == shard), key=lambda item: item[1])
        reply = [
            (b"%d-%d" % (AT_MS + later, number), (b"e", pack(definition.kind, event)))
            for number, (_, later, event) in enumerate(mine)
        ]
        entries = entries_of(reply)
        ages = Ages.of(TierRetention())
        found.append(events_of(definition, entries, shard=shard, at_ms=AT_MS, ages=ages).table)
    return pa.concat_tables(found)


def model(definition: MetricDefinition, placed: list[Placed]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The same sums, in the plainest way."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for shard, later, event in sorted(placed, key=lambda item: (item[0], item[1])):
        bucket = (AT_MS + later) // 5_000 * 5
        row = rows.setdefault((shard, bucket, *event.dimensions), {"events": 0, "#waits": []})
        row["events"] += 1
        row["#waits"] += event.samples
        for field in definition.kind.fields:
            value = event.values.get(field.name, 0)
            for aggregate in field.aggregates:
                name = column_of(field, aggregate)
                before = row.get(name)
                row[name] = {
                    Aggregate.SUM: (before or 0) + value,
                    Aggregate.MAX: max(before or 0, value),
                    Aggregate.MIN: value if before is None else min(before, value),
                    Aggregate.LAST: value,
                }[aggregate]
    return rows


def events(definition: MetricDefinition) -> st.SearchStrategy[MetricEvent]:
    small = st.sampled_from(["a", "b", "ä:*"])
    numbers = {
        field.name: st.integers(0, min(2 ** (8 * field.width) - 1, 10**6)) for field in definition.kind.fields
    }
    waits = st.lists(st.integers(0, 9_999), max_size=3).map(tuple) if definition.kind.samples else st.just(())
    return st.builds(
        MetricEvent,
        dimensions=st.tuples(*(small for _ in definition.kind.dimensions)),
        values=st.fixed_dictionaries(numbers),
        samples=waits,
    )


def of_few_subjects(event: MetricEvent) -> MetricEvent:
    """The same event of a subject that only its last name tells from others."""
    *first, last = event.dimensions
    return replace(event, dimensions=(*("a" for _ in first), last))


def placed(definition: MetricDefinition) -> st.SearchStrategy[list[Placed]]:
    return st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 12_000), events(definition)), min_size=1, max_size=12
    )


def check(definition: MetricDefinition, items: list[Placed]) -> None:
    rows = landing_rows(definition, table(definition, items)).to_pylist()
    expected = model(definition, items)
    assert len(rows) == len(expected)
    for row in rows:
        key = (row["shard"], row["bucket_start"], *(row[name] for name in definition.kind.dimensions))
        mine = dict(expected[key])
        samples = mine.pop("#waits")
        if definition.kind.samples:
            assert sorted(row[definition.kind.samples]) == sorted(samples)
        assert {name: row[name] for name in mine} == mine


@settings(max_examples=30, deadline=None)
@given(placed(QUEUE_METRIC))
def test_queue_rows_are_the_sums_maxima_and_last_values_of_their_events(items: list[Placed]) -> None:
    check(QUEUE_METRIC, items)


@settings(max_examples=15, deadline=None)
@given(placed(WORKER_METRIC))
def test_worker_rows_merge_by_weight(items: list[Placed]) -> None:
    check(WORKER_METRIC, items)


@settings(max_examples=30, deadline=None)
@given(placed(QUEUE_METRIC), st.integers(0, 12_000))
def test_rows_of_parts_join_into_the_rows_of_the_whole(items: list[Placed], cut_ms: int) -> None:
    """Wherever the streams are cut, and in whatever order the parts come."""
    # Few subjects in one shard, so that both parts have rows of the same ones.
    events = table(QUEUE_METRIC, [(0, later, of_few_subjects(one)) for _, later, one in items])
    late = pa.array([ms >= AT_MS + cut_ms for ms in events["stream_ms"].to_pylist()])
    parts = [events.filter(late), events.filter(pa.compute.invert(late))]
    rows = pa.concat_tables([landing_rows(QUEUE_METRIC, part) for part in parts if part.num_rows])

    def in_order(found: pa.Table) -> list[dict[str, Any]]:
        shown = [{**row, "wait_ms": sorted(row["wait_ms"])} for row in found.to_pylist()]
        return sorted(shown, key=lambda row: (row["queue"], row["environment"], str(row)))

    whole = landing_rows(QUEUE_METRIC, events)
    joined = joined_rows(QUEUE_METRIC, rows)
    assert joined.schema == whole.schema
    assert in_order(joined) == in_order(whole)


def test_the_number_of_rows_follows_queues_and_not_events() -> None:
    event = MetricEvent(dimensions=("o", "p", "e", "q"), values={"dequeued": 1}, samples=(3,))
    items = [(0, later % 4_000 - 3_000, event) for later in range(2_000)]
    rows = landing_rows(QUEUE_METRIC, table(QUEUE_METRIC, items))
    assert rows.num_rows <= 2
    assert sum(rows["dequeued"].to_pylist()) == 2_000
    assert sum(map(len, rows["wait_ms"].to_pylist())) == 2_000


def test_every_landing_column_of_the_catalogue_has_a_table_that_takes_it() -> None:
    assert {column_of(field, aggregate) for field in QUEUE.fields for aggregate in field.aggregates} >= {
        "enqueued", "max_queue_length", "last_queue_length", "enqueued_total",
    }  # fmt: skip
    assert {column_of(field, aggregate) for field in WORKER.fields for aggregate in field.aggregates} >= {
        "free_slots_min", "max_pool_size", "last_pool_size",
    }  # fmt: skip
