"""The whole way on Spark: streams, read tasks, warehouse, archive; and what it survives."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.audits import audited
from tests.pipeline.emission import Emission
from tests.pipeline.flow import drain

from weir.pipeline.batches import Landed
from weir.pipeline.checkpoint import repair_checkpoint
from weir.pipeline.definition import DEFINITIONS
from weir.pipeline.drift_audit import PipelineAuditor
from weir.pipeline.job import PipelineOptions
from weir.pipeline.offsets import BatchPlan
from weir.pipeline.rebuild import clear, rebuild
from weir.telemetry.events import QUEUE_COUNTERS
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import stream_key
from weir.warehouse.connection import ClickHouseConnection

TIERS = ("queue_metrics_5s", "queue_metrics_1m", "queue_metrics_1h", "environment_metrics_1h", "queue_ledger")


def moved(spark: SparkSession, options: PipelineOptions) -> list[Landed]:
    """Run until the streams are empty."""
    landed: list[Landed] = []
    drain(spark, options, observe=lambda _, rows: landed.extend(rows))
    return landed


def check(warehouse: ClickHouseConnection, emission: Emission) -> None:
    columns = ", ".join(f"sum({name}) AS {name}" for name in ("events", *QUEUE_COUNTERS))
    expected = {"events": emission.events, **{name: emission.counted[name] for name in QUEUE_COUNTERS}}
    for table in TIERS:
        assert warehouse.rows(f"SELECT {columns} FROM {table}")[0] == expected, table


def auditor(options: PipelineOptions, warehouse: ClickHouseConnection) -> PipelineAuditor:
    return PipelineAuditor(
        StreamStore(options.redis_url), warehouse, metrics=["queue"], shards=options.shards
    )


def test_every_event_lands_once_and_survives_lost_checkpoints(
    spark: SparkSession, options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection
) -> None:
    emission.emit(1_200)
    landed = moved(spark, replace(options, max_events=1_000))
    assert sum(row.events for row in landed) == 1_200
    assert len(landed) > 1
    check(warehouse, emission)

    shutil.rmtree(options.checkpoint)
    emission.emit(700)
    moved(spark, options)
    check(warehouse, emission)

    shutil.rmtree(options.checkpoint)
    emission.redis.delete("weir:pipeline:plan")
    emission.emit(300)
    moved(spark, options)
    check(warehouse, emission)
    live = {
        queue: tuple(totals[name] for name in QUEUE_COUNTERS) for queue, totals in emission.odometers.items()
    }
    report = audited(auditor(options, warehouse), live)
    assert (report.drift, report.events, report.complete) == (0, 2_200, True)


@pytest.mark.parametrize("hand_rows", [10_000, 0], ids=["joined", "grouped"])
@pytest.mark.parametrize("read_tasks", [2, 4])
def test_one_stream_read_by_several_tasks_lands_once(
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
    options: PipelineOptions,
    warehouse: ClickHouseConnection,
    streams_url: str,
    read_tasks: int,
    hand_rows: int,
) -> None:
    monkeypatch.setattr(BatchPlan, "hand_rows", hand_rows)
    emission = Emission(streams_url, shards=1, queues=30)
    emission.emit(3_000)
    split = replace(options, shards=1, max_read_tasks=read_tasks, read_task_events=100)
    landed = moved(spark, split)
    assert sum(row.events for row in landed) == 3_000
    assert len([row for row in landed if row.events]) == read_tasks
    check(warehouse, emission)
    last = "SELECT queue, max(last).queue_length AS n FROM queue_metrics_5s GROUP BY queue"
    by_task = {row["queue"]: row["n"] for row in warehouse.rows(last)}
    rebuild(spark, split, from_ms=0, to_ms=4_000_000_000_000)
    check(warehouse, emission)
    assert {row["queue"]: row["n"] for row in warehouse.rows(last)} == by_task

    # The same batch again, without its checkpoint: the tokens of its partitions are known.
    plan = StreamStore(split.redis_url).recall("plan")
    assert plan is not None
    shutil.rmtree(options.checkpoint)
    emission.emit(500)
    moved(spark, split)
    check(warehouse, emission)
    report = audited(auditor(split, warehouse))
    assert (report.drift, report.events) == (0, 3_500)
    emission.redis.close()


def test_a_gap_over_the_cuts_of_a_stream_is_recorded_once(
    spark: SparkSession, options: PipelineOptions, warehouse: ClickHouseConnection, streams_url: str
) -> None:
    emission = Emission(streams_url, shards=1, queues=3)
    split = replace(options, shards=1, max_read_tasks=4, read_task_events=50)
    emission.emit(100)
    moved(spark, split)
    seen = dict(emission.counted)
    emission.emit(900)
    key = stream_key("queue", 0)
    ids = [entry[0].decode() for entry in emission.redis.xrange(key)]
    store = StreamStore(split.redis_url)
    plan = store.recall("plan")
    assert plan is not None
    cuts = {"queue": {"0": [[ids[at], number] for number, at in ((1, 200), (2, 400), (3, 600))]}}
    end = {
        "at_ms": plan["end"]["at_ms"] + 1, "lanes": {"queue": {"0": 0}}, "streams": {"queue": {"0": ids[-1]}},
        "split": {"version": 1, "partitions": 2, "cuts": cuts},
    }  # fmt: skip
    store.remember("plan", {"start": plan["end"], "end": end})
    lost = ids[1:500]
    emission.redis.xdel(key, ids[0], *lost)
    moved(spark, split)
    (gap,) = warehouse.rows("SELECT from_id, to_id FROM metric_gaps FINAL")
    assert gap == {"from_id": ids[0], "to_id": ids[500]}
    assert warehouse.rows("SELECT sum(events) AS n FROM queue_metrics_5s") == [{"n": 1_000 - len(lost)}]
    assert audited(auditor(split, warehouse)).drift == 0
    assert sum(emission.counted.values()) > sum(seen.values())
    store.close()
    emission.redis.close()


def test_a_rebuild_from_the_archive_puts_back_what_a_tier_lost(
    spark: SparkSession, options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection
) -> None:
    emission.emit(1_000)
    moved(spark, options)
    waits = "SELECT sum(wait_count) AS n, sum(wait_sum_ms) AS total FROM queue_metrics_1m"
    before = warehouse.rows(waits)
    clear(warehouse, DEFINITIONS[0], from_ms=0, to_ms=4_000_000_000_000)
    assert warehouse.rows(waits)[0]["n"] == 0
    done = rebuild(spark, options, from_ms=0, to_ms=4_000_000_000_000)
    assert done.events == {"queue": 1_000, "worker": 0, "worker_lag": 0, "life": 0, "log": 0}
    rebuild(spark, options, from_ms=0, to_ms=4_000_000_000_000)
    check(warehouse, emission)
    assert warehouse.rows(waits) == before


def test_what_redis_drops_before_it_is_read_is_a_gap_counted_by_odometer(
    spark: SparkSession, options: PipelineOptions, warehouse: ClickHouseConnection, streams_url: str
) -> None:
    emission = Emission(streams_url, shards=2, queues=1)
    (queue,) = emission._queues
    emission.emit(100)
    moved(spark, options)
    seen = dict(emission.counted)
    emission.emit(50)
    lost = {name: emission.counted[name] - seen.get(name, 0) for name in QUEUE_COUNTERS}
    emission.redis.xtrim(emission.stream(queue), maxlen=0, approximate=False)
    emission.emit(100)
    moved(spark, options)
    report = audited(auditor(options, warehouse))
    (gap,) = report.gaps
    assert (gap.metric, gap.lost) == ("queue", lost)
    assert report.lost == lost
    assert (report.drift, report.events) == (0, 200)
    assert audited(auditor(options, warehouse)).lost == lost
    emission.redis.close()


@pytest.mark.slow
def test_a_checkpoint_with_a_torn_last_entry_is_repaired_and_nothing_counts_twice(
    spark: SparkSession, options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection
) -> None:
    emission.emit(500)
    moved(spark, options)
    offsets = Path(options.checkpoint) / "offsets"
    last = max(int(path.name) for path in offsets.iterdir() if path.name.isdecimal())
    (offsets / str(last)).write_text("")
    (Path(options.checkpoint) / "commits" / str(last)).unlink()
    emission.emit(100)
    with pytest.raises(Exception, match=r"offset|log"):
        moved(spark, options)
    assert repair_checkpoint(Path(options.checkpoint)) == [f"offsets/{last}"]
    moved(spark, options)
    check(warehouse, emission)
