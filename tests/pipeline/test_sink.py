"""A read task into the warehouse and the archive: once, however often it is tried."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.pipeline.emission import Emission
from tests.pipeline.flow import Flow, read

from benches.percentiles import ranked_waits, relative_error
from support.tcp_proxy import TcpProxy
from weir.errors import WarehouseUnavailable
from weir.pipeline.archive import Archive, covered_once
from weir.pipeline.definition import QUEUE_METRIC
from weir.pipeline.job import PipelineOptions
from weir.pipeline.offsets import Offset, plan_between
from weir.pipeline.partials import rows_in
from weir.pipeline.sink import connection, insert, land
from weir.telemetry.events import QUEUE_COUNTERS
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import Stream, stream_key
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.percentiles import RELATIVE_ERROR, waits_sql

TABLES = tuple(QUEUE_METRIC.tiers)


def batches(options: PipelineOptions) -> Iterator[pa.RecordBatch]:
    """Everything in the streams as one read task, read as a task would."""
    store = StreamStore(options.redis_url)
    positions: dict[Stream, str] = {}
    for shard in range(options.shards):
        tail = store.tails([stream_key("queue", shard)])[0]
        if tail is not None:
            positions["queue", shard] = tail.last_id
    end = Offset(at_ms=time.time_ns() // 1_000_000, positions=positions)
    for read_task in plan_between(Offset(), end).read_tasks:
        yield from read(options, store, read_task)
    store.close()


def sums(warehouse: ClickHouseConnection, table: str) -> dict[str, int]:
    columns = ", ".join(f"sum({name}) AS {name}" for name in ("events", *QUEUE_COUNTERS))
    return warehouse.rows(f"SELECT {columns} FROM {table}")[0]


def check(warehouse: ClickHouseConnection, emission: Emission) -> None:
    expected = {"events": emission.events, **{name: emission.counted[name] for name in QUEUE_COUNTERS}}
    for table in (*TABLES, "queue_ledger"):
        assert sums(warehouse, table) == expected, table


def test_a_lane_lands_in_every_tier(
    options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection
) -> None:
    emission.emit(3_000)
    (row,) = [row for batch in land(batches(options), options.sink) for row in batch.to_pylist()]
    assert (row["metric"], row["events"], row["rejected"], row["gaps"]) == ("queue", 3_000, 0, "[]")
    check(warehouse, emission)


def test_few_rows_are_handed_on_and_not_inserted_but_their_files_are_stored(
    options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection
) -> None:
    emission.emit(300)
    found = land(batches(options), options.sink, hand_rows=100_000)
    (row,) = [row for batch in found for row in batch.to_pylist()]
    handed = rows_in(row["handed"])
    assert (row["rows"], sum(handed["events"].to_pylist())) == (0, 300)
    assert sums(warehouse, TABLES[0])["events"] == 0
    assert Archive(str(options.archive)).files("queue", from_ms=0, to_ms=2**62)
    again = land(batches(options), options.sink, hand_rows=handed.num_rows - 1)
    assert [row["handed"] for batch in again for row in batch.to_pylist()] == [None]
    check(warehouse, emission)


def test_a_lane_that_lands_twice_counts_once(
    options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection
) -> None:
    emission.emit(500)
    for _ in range(3):
        list(land(batches(options), options.sink))
    check(warehouse, emission)
    (files,) = [Archive(str(options.archive)).files("queue", from_ms=0, to_ms=2**62)]
    assert (
        sum(Archive(str(options.archive)).read(file.path, QUEUE_METRIC.kind).num_rows for file in files)
        == 500
    )


def test_a_token_stands_for_the_rows_between_two_positions_and_each_block_is_in_key_order(
    options: PipelineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks: dict[str, list[str]] = {}

    class Recorder:
        def insert(self, table: str, rows: pa.Table, *, token: str) -> None:
            assert table == QUEUE_METRIC.landing
            blocks[token] = rows["queue"].to_pylist()

    monkeypatch.setattr("weir.pipeline.sink.connection", lambda _: Recorder())
    monkeypatch.setattr("weir.pipeline.sink.SLICE_ROWS", 3)
    rows = pa.table(
        {
            **{name: ["one"] * 5 for name in ("organization", "project", "environment")},
            "queue": ["é", "b", "B", "a", "Z"],
            "bucket_start": pa.array([5] * 5, pa.uint32()),
        }
    )
    insert(options.sink, QUEUE_METRIC, rows, token="token")
    assert blocks == {"token": ["B", "b", "é"], "token-3": ["Z", "a"]}


async def test_an_insert_whose_reply_is_lost_counts_once(
    options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection
) -> None:
    emission.emit(400)
    async with TcpProxy.to(options.clickhouse_url) as proxy:
        through = replace(options, clickhouse_url=proxy.url)
        await asyncio.to_thread(connection, proxy.url)
        proxy.drop_next_reply()
        await asyncio.to_thread(lambda: list(land(batches(through), through.sink)))
        assert proxy.replies > 1
        connection.cache_clear()
    check(warehouse, emission)


async def test_a_warehouse_that_stays_away_is_an_error_and_the_next_try_lands(
    options: PipelineOptions,
    emission: Emission,
    warehouse: ClickHouseConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weir.pipeline.sink.time.sleep", lambda _: None)
    emission.emit(100)
    async with TcpProxy.to(options.clickhouse_url) as proxy:
        through = replace(options, clickhouse_url=proxy.url)
        proxy.refuse()
        with pytest.raises(WarehouseUnavailable):
            await asyncio.to_thread(lambda: list(land(batches(through), through.sink)))
        proxy.heal()
        await asyncio.to_thread(lambda: list(land(batches(through), through.sink)))
        connection.cache_clear()
    check(warehouse, emission)


def test_a_view_that_throws_in_the_middle_is_repaired_by_the_retry(
    options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection
) -> None:
    emission.emit(200)
    warehouse.command("CREATE TABLE switch (on UInt8) ENGINE = Memory")
    warehouse.command("INSERT INTO switch VALUES (1)")
    warehouse.command(
        "CREATE MATERIALIZED VIEW failing ENGINE = Memory AS "
        "SELECT throwIf((SELECT max(on) FROM switch) = 1) AS x FROM queue_events_landing"
    )
    with pytest.raises(Exception, match="throwIf"):
        list(land(batches(options), options.sink))
    warehouse.command("TRUNCATE TABLE switch")
    list(land(batches(options), options.sink))
    check(warehouse, emission)


WAITS: dict[str, Callable[[random.Random], float]] = {
    "uniform": lambda chance: chance.uniform(0, 10_000),
    "exponential": lambda chance: chance.expovariate(1 / 800),
    "lognormal": lambda chance: chance.lognormvariate(6, 1.5),
    "heavy tail": lambda chance: min(100 * chance.paretovariate(1.1), 4e9),
    "two humps": lambda chance: (
        chance.gauss(200, 20) if chance.random() < 0.7 else chance.gauss(60_000, 5_000)
    ),
    "nearly constant": lambda chance: 1_000 + chance.randrange(5),
    "mostly zero": lambda chance: 0 if chance.random() < 0.3 else chance.uniform(50, 90),
}


def test_percentiles_are_within_one_percent_over_any_merge(
    options: PipelineOptions, warehouse: ClickHouseConnection, streams_url: str
) -> None:
    """Of queues with waits of every shape, and of all of them together, in every tier, over many inserts."""
    chance, shapes = random.Random(5), list(WAITS.values())
    emission = Emission(
        streams_url,
        queues=len(shapes),
        wait=lambda queue: round(max(shapes[int(queue.queue.removeprefix("queue:"))](chance), 0)),
    )
    flow = Flow(options)
    for _ in range(3):
        emission.emit(5_000)
        flow.move()
    flow.close()
    emission.redis.close()
    of_queue = {queue.queue: waits for queue, waits in emission.waits_of.items()}
    for table in TABLES:
        check_waits(warehouse, table, "'all'", {"all": emission.waits})
        if table.startswith("queue"):
            check_waits(warehouse, table, "queue", of_queue)


def check_waits(
    warehouse: ClickHouseConnection, table: str, group: str, expected: Mapping[str, Sequence[int]]
) -> None:
    """Count and sum are exact, and percentiles nearly, in every group of rows."""
    rows = warehouse.rows(f"SELECT {group} AS name, {waits_sql('t')} FROM {table} AS t GROUP BY name")
    assert {row["name"]: (row["wait_count"], row["wait_sum_ms"]) for row in rows} == {
        name: (len(waits), sum(waits)) for name, waits in expected.items()
    }
    for row in rows:
        for estimate, allowed in zip(
            row["wait_percentiles"], ranked_waits(expected[row["name"]]), strict=True
        ):
            assert relative_error(estimate, allowed) <= 1.000001 * RELATIVE_ERROR, (table, row["name"])


def test_junk_is_quarantined_and_the_lane_goes_on(
    options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection
) -> None:
    emission.emit(50)
    for junk in ({"x": "y"}, {"e": b"\xff" * 10}, {"e": b"z" * 20_000}, {"e": b""}):
        emission.redis.xadd(stream_key("queue", 0), junk)
    list(land(batches(options), options.sink))
    check(warehouse, emission)
    rows = warehouse.rows(
        "SELECT reason, action, sum(events) AS n FROM metric_rejects GROUP BY 1, 2 ORDER BY 1"
    )
    assert [(row["reason"], row["n"]) for row in rows] == [
        ("no event field", 1), ("oversized", 1), ("truncated header", 2),
    ]  # fmt: skip


def test_two_inserts_with_equal_rows_are_two(
    options: PipelineOptions, warehouse: ClickHouseConnection, emission: Emission
) -> None:
    """Views whose output is equal for two different inserts must not be taken for repetitions."""
    emission.emit(1)
    rows = list(batches(options))
    token = rows[0].schema.get_field_index("token")
    for name in ("one", "two"):
        renamed = rows[0].set_column(token, "token", pa.array([name]))
        list(land([renamed], replace(options, archive=None).sink))
    assert sums(warehouse, "queue_metrics_1h")["events"] == 2
    assert sums(warehouse, "queue_metrics_5s")["events"] == 2


def test_files_that_overlap_count_every_event_once() -> None:
    pieces = list(
        covered_once(
            [
                ("late", [(0, "5-0", "9-0"), (1, "1-0", "2-0")]),
                ("early", [(0, "1-0", "7-0")]),
                ("inside", [(0, "2-0", "6-0")]),
            ]
        )
    )
    assert dict(pieces) == {
        "early": [(0, "1-0", "7-0")],
        "inside": [],
        "late": [(0, "7-0", "9-0"), (1, "1-0", "2-0")],
    }


@pytest.mark.slow
def test_a_batch_of_a_hundred_thousand_queues_is_one_part_a_tier(
    options: PipelineOptions, warehouse: ClickHouseConnection, streams_url: str
) -> None:
    """Grouping that many keys answers in hundreds of blocks, which must not become as many parts."""
    wide = Emission(streams_url, shards=options.shards, queues=110_000, environments=64)
    wide.emit(200_000)
    list(land(batches(options), options.sink))
    check(warehouse, wide)
    rows = warehouse.rows(
        "SELECT table, count() AS parts FROM system.parts WHERE database = currentDatabase() "
        "AND table LIKE 'queue_metrics%' AND active GROUP BY table"
    )
    assert {row["table"] for row in rows} == {f"queue_metrics_{tier}" for tier in ("5s", "1m", "1h")}
    assert max(row["parts"] for row in rows) <= 3
    wide.redis.close()


def test_streams_that_are_archived_while_others_are_read_add_up_to_the_same(
    options: PipelineOptions,
    emission: Emission,
    warehouse: ClickHouseConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weir.pipeline.partials.PORTION_EVENTS", 10)
    emission.emit(1_000)
    for _ in range(2):
        (row,) = [row for batch in land(batches(options), options.sink) for row in batch.to_pylist()]
        assert row["events"] == 1_000
    check(warehouse, emission)
    archive = Archive(str(options.archive))
    files = archive.files("queue", from_ms=0, to_ms=2**62)
    assert sorted(archive.ranges(file.path)[0][0] for file in files) == [0, 1]
    assert sum(archive.rows(file.path) for file in files) == 1_000
