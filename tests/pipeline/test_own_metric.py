"""A metric of a user's own goes the whole way: emission, tiers or plain rows, lost checkpoints, a rebuild."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from redis import Redis
from tests.pipeline.test_spark import moved

from weir.errors import Misconfigured
from weir.metrics import Aggregate, EventKind, Field, MetricDefinition, MetricEmitter, MetricEvent, TextField
from weir.pipeline.definition import DEFINITIONS
from weir.pipeline.job import PipelineOptions
from weir.pipeline.metric_migration import make_tables, require_tables
from weir.pipeline.rebuild import rebuild
from weir.pipeline.status import read_pipeline, shown
from weir.telemetry.progress import PipelineStatus, publish_status
from weir.telemetry.store import StreamStore
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.tables import TierRetention

MAIL = EventKind(
    name="mail",
    dimensions=("sender", "domain"),
    fields=(
        Field(name="sent", width=4, aggregates=(Aggregate.SUM,)),
        Field(name="size", width=4, aggregates=(Aggregate.MIN, Aggregate.MAX, Aggregate.LAST)),
    ),
    samples="delay_ms",
)
VISIT = EventKind(
    name="visit",
    dimensions=("site",),
    fields=(Field(name="took_ms", width=4),),
    texts=(TextField(name="visit_id", max_bytes=16, binary=True), TextField(name="error", max_bytes=100)),
)
OWN = (MetricDefinition(kind=MAIL), MetricDefinition(kind=VISIT, plain=True))
ALL_TIME = {"from_ms": 0, "to_ms": 4_000_000_000_000}


def emit(options: PipelineOptions, begin: int, end: int) -> None:
    with MetricEmitter(options.redis_url, shards=2) as emitter:
        for n in range(begin, end):
            mail = MetricEvent(
                dimensions=(f"s{n % 3}", "x.org"), values={"sent": 1, "size": 100 + n}, samples=(n,)
            )
            emitter.emit(MAIL, mail)
            texts = {"visit_id": n.to_bytes(16), "error": f"fehlt № {n}"}
            emitter.emit(VISIT, MetricEvent(dimensions=("a",), values={"took_ms": n}, texts=texts))
    assert emitter.counts.sent == 2 * (end - begin)


def state(warehouse: ClickHouseConnection) -> dict[str, object]:
    """All that the tables hold, merged."""
    tiers = {
        tier: warehouse.rows(
            "SELECT sender, sum(events) AS events, sum(sent) AS sent, min(min_size) AS least, "
            "max(max_size) AS most, max(last_size).value AS last, sum(delay_ms_count) AS count, "
            "sum(delay_ms_sum) AS total, max(delay_ms_max) AS longest, "
            f"quantilesDDMerge(0.01, 0.5, 0.95, 0.99)(delay_ms_sketch) AS sketch FROM {tier} "
            "GROUP BY sender ORDER BY sender"
        )
        for tier in OWN[0].tiers
    }
    rows = warehouse.rows("SELECT * FROM visit_rows ORDER BY took_ms, stream_at, stream_sequence")
    return {**tiers, "rows": rows}


def check(warehouse: ClickHouseConnection, count: int) -> None:
    found = state(warehouse)
    for tier in OWN[0].tiers:
        for sender, row in enumerate(found[tier]):
            mine = [n for n in range(count) if n % 3 == sender]
            assert (row["events"], row["sent"], row["count"]) == (len(mine),) * 3
            assert (row["least"], row["most"], row["last"]) == (100 + mine[0], 100 + mine[-1], 100 + mine[-1])
            assert (row["total"], row["longest"]) == (sum(mine), mine[-1])
    assert [(row["took_ms"], row["error"]) for row in found["rows"]] == [
        (n, f"fehlt № {n}") for n in range(count)
    ]


def test_a_metric_of_ones_own_is_exact_after_lost_checkpoints_and_a_rebuild(
    spark: SparkSession, options: PipelineOptions, warehouse: ClickHouseConnection
) -> None:
    options = replace(options, definitions=(*DEFINITIONS, *OWN))
    make_tables(warehouse, OWN, TierRetention())
    emit(options, 0, 300)
    moved(spark, options)
    check(warehouse, 300)

    shutil.rmtree(options.checkpoint)
    with Redis.from_url(options.redis_url) as redis:
        redis.delete("weir:pipeline:plan")
    moved(spark, options)
    check(warehouse, 300)
    emit(options, 300, 400)
    moved(spark, options)
    check(warehouse, 400)

    before = state(warehouse)
    warehouse.command("TRUNCATE TABLE visit_rows")
    done = rebuild(spark, options, **ALL_TIME, metrics=("mail", "visit"))
    assert done.events == {"mail": 400, "visit": 400}
    assert state(warehouse) == before

    view = read_pipeline(
        redis_url=options.redis_url,
        clickhouse_url=options.clickhouse_url,
        metrics=["mail", "visit"],
        shards=2,
    )
    assert {lag.metric for lag in view.streams} == {"mail", "visit"}
    assert view.lag_events == 0
    assert "visit shard 1" in shown(view)


def test_without_the_offset_view_a_lost_checkpoint_would_count_twice_so_a_start_is_refused(
    spark: SparkSession, options: PipelineOptions, warehouse: ClickHouseConnection
) -> None:
    options = replace(options, definitions=(*DEFINITIONS, *OWN))
    make_tables(warehouse, OWN, TierRetention())
    for one in OWN:
        warehouse.command(f"DROP TABLE {one.offsets_view}")
    for begin in (0, 15):
        emit(options, begin, begin + 15)
        moved(spark, options)
    shutil.rmtree(options.checkpoint)
    with Redis.from_url(options.redis_url) as redis:
        redis.delete("weir:pipeline:plan")
    moved(spark, options)
    (row,) = warehouse.rows("SELECT count() AS count FROM visit_rows")
    # The entry that stays in the stream as a witness came again, in a batch with another token.
    assert row["count"] == 31
    with pytest.raises(Misconfigured, match="lacks the view `mail_ingest_offsets_view`; run `weir migrate`"):
        require_tables(warehouse, options.definitions)


def test_a_process_without_the_users_module_shows_what_the_pipeline_says_it_moves(
    options: PipelineOptions,
) -> None:
    emit(options, 0, 30)
    store = StreamStore(options.redis_url)
    now_ms = time.time_ns() // 1_000_000
    publish_status(
        store, PipelineStatus(state="running", updated_ms=now_ms, since_ms=now_ms, metrics=("queue", "mail"))
    )
    seen = {
        "redis_url": options.redis_url,
        "clickhouse_url": options.clickhouse_url,
        "metrics": ["queue"],
        "shards": 2,
    }
    view = read_pipeline(**seen)
    assert {lag.metric for lag in view.streams} == {"mail"}
    assert (view.running, view.lag_events) == (True, 30)
    # A pipeline of another version says less or more.
    store.remember("status", {"state": "running", "updated_ms": now_ms, "since_ms": now_ms, "later": 1})
    assert read_pipeline(**seen).streams == []
    store.close()
