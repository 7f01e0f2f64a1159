"""The log goes the whole way: from the broker's stream into ClickHouse and the archive, each message once."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from tests.pipeline.exactness import Rig, is_python_worker, kill_child
from tests.pipeline.test_spark import moved

from support.lives import emitted_log
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.broker.scripts import script
from weir.model.clock import SystemClock
from weir.model.durations import DAY_MS, HOUR_MS
from weir.model.logged import BEGINNING, LogAccount, LoggedMessage, place_of
from weir.model.message import Failure, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.pipeline.archive import Archive
from weir.pipeline.definition import LOG_METRIC
from weir.pipeline.job import PipelineOptions
from weir.pipeline.rebuild import rebuild
from weir.pipeline.upkeep import expire_log
from weir.spec.ir import DeliveryPolicy, QueueSpec
from weir.telemetry import log_layout
from weir.telemetry.streams import stream_key
from weir.telemetry.tails import RedisTails
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.reading.log import LogReader
from weir.warehouse.reading.warehouse import open_warehouse
from weir.warehouse.tables import GapKind

SCOPE = EnvironmentRef(organization="o", project="p", environment="e")
SCOPE_TWO = EnvironmentRef(organization="o", project="p", environment="other")
LONG, SHORT, PLAIN = SCOPE.queue("long"), SCOPE.queue("short"), SCOPE.queue("plain")
ALL_TIME = {"from_ms": 0, "to_ms": 4_000_000_000_000}


@pytest.fixture
async def broker(streams_url: str) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(RedisConnection(url=streams_url), shards=2)
    once = DeliveryPolicy(max_attempts=1)
    for queue, log_ms in ((LONG, 30 * DAY_MS), (SHORT, HOUR_MS), (PLAIN, None)):
        await broker.define(queue, QueueSpec(name=queue.queue, delivery=once, log_ms=log_ms))
    yield broker
    await broker.aclose()


@pytest.fixture
async def log(streams_url: str, warehouse_url: str) -> AsyncIterator[LogReader]:
    client = AsyncRedis.from_url(streams_url)
    warehouse = open_warehouse(warehouse_url, tails=RedisTails(client, shards=2), shards=2)
    yield warehouse.log
    await warehouse.aclose()
    await client.aclose()


async def live_and_end(broker: RedisBroker) -> None:
    """Messages that end in several ways, in three queues."""
    for queue in (LONG, SHORT, PLAIN):
        carried = [
            NewMessage(payload=b'{"n": %d}' % n, key=f"k{n % 3}", headers={"n": str(n)}) for n in range(40)
        ]
        await broker.enqueue(queue, carried)
        failing, cancelled, *others = await broker.dequeue(queue, consumer="tester", limit=100)
        await broker.nack([Failure(lease=failing.lease)])
        await broker.cancel(queue, [cancelled.message_id])
        await broker.ack([replace(one.lease, handler_ms=7) for one in others])


async def read_all(log: LogReader, queue: QueueRef, **asked: Any) -> list[LoggedMessage]:
    found: list[LoggedMessage] = []
    while True:
        after = place_of(found[-1]) if found else BEGINNING
        page = await log.read(queue, **{**ALL_TIME, **asked}, after=after, limit=7)
        if not page:
            return found
        found += page


async def test_every_message_lands_once_with_what_it_carried(
    spark: SparkSession, options: PipelineOptions, broker: RedisBroker, log: LogReader
) -> None:
    await live_and_end(broker)
    emitted = {queue: await emitted_log(broker, queue) for queue in (LONG, SHORT, PLAIN)}
    assert {queue.queue: len(found) for queue, found in emitted.items()} == {
        "long": 40,
        "short": 40,
        "plain": 0,
    }
    moved(spark, options)
    for queue, found in emitted.items():
        assert await read_all(log, queue) == found
    keyed = await read_all(log, LONG, key="k1")
    assert keyed == [one for one in emitted[LONG] if one.life.key == "k1"]
    middle = emitted[LONG][2].life.ended_at_ms
    later = await read_all(log, LONG, from_ms=middle)
    assert later == [one for one in emitted[LONG] if one.life.ended_at_ms >= middle]
    assert await read_all(log, SCOPE_TWO.queue("long")) == []


async def test_the_log_is_exact_after_lost_checkpoints_and_a_rebuild(
    spark: SparkSession,
    options: PipelineOptions,
    broker: RedisBroker,
    log: LogReader,
    warehouse: ClickHouseConnection,
) -> None:
    await live_and_end(broker)
    moved(spark, options)
    shutil.rmtree(options.checkpoint)
    with Redis.from_url(options.redis_url) as redis:
        redis.delete("weir:pipeline:plan")
    moved(spark, options)
    await live_and_end(broker)
    moved(spark, options)
    everything = "SELECT * FROM message_log ORDER BY queue, number"
    before = warehouse.rows(everything)
    for queue in (LONG, SHORT):
        assert [one.number for one in await read_all(log, queue)] == list(range(1, 81))
    warehouse.command("TRUNCATE TABLE message_log")
    rebuild(spark, options, **ALL_TIME, metrics=("log",))
    assert warehouse.rows(everything) == before


async def test_files_of_the_archive_are_removed_when_their_queues_promise_is_over(
    spark: SparkSession, options: PipelineOptions, broker: RedisBroker
) -> None:
    await live_and_end(broker)
    moved(spark, options)
    archive = Archive(str(options.archive))
    files = archive.files("log", from_ms=0, to_ms=2**62)
    assert {file.keep_s for file in files} == {30 * 86_400, 3_600}
    for file in files:
        (queue,) = set(archive.read(file.path, LOG_METRIC.kind)["queue"].to_pylist())
        assert (queue == "long") == (file.keep_s == 30 * 86_400)
    now_ms = SystemClock().now_ms()
    assert expire_log(archive, "log", now_ms=now_ms) == []
    assert expire_log(archive, "log", now_ms=now_ms + 3 * HOUR_MS)
    left = archive.files("log", from_ms=0, to_ms=2**62)
    assert {file.keep_s for file in left} == {30 * 86_400}
    expire_log(archive, "log", now_ms=now_ms + 32 * DAY_MS)
    assert archive.files("log", from_ms=0, to_ms=2**62) == []


async def test_messages_that_redis_dropped_are_a_recorded_gap(
    spark: SparkSession, options: PipelineOptions, broker: RedisBroker, log: LogReader
) -> None:
    await live_and_end(broker)
    moved(spark, options)
    await live_and_end(broker)
    with Redis.from_url(options.redis_url) as redis:
        for shard in range(2):
            redis.xtrim(stream_key("log", shard), maxlen=0, approximate=False)
    await live_and_end(broker)
    moved(spark, options)
    assert [one.number for one in await read_all(log, LONG)] == [*range(1, 41), *range(81, 121)]
    (gap,) = await log.gaps(LONG, **ALL_TIME)
    assert gap.kind is GapKind.DROPPED
    assert await log.account(LONG, **ALL_TIME) == LogAccount(messages=80, missing=40)


async def test_an_entry_with_bodies_that_cannot_be_read_is_set_aside(
    spark: SparkSession, options: PipelineOptions, broker: RedisBroker, warehouse: ClickHouseConnection
) -> None:
    await broker.enqueue(LONG, [NewMessage(payload=b"unmistakable")])
    await broker.ack([one.lease for one in await broker.dequeue(LONG, consumer="tester")])
    with Redis.from_url(options.redis_url) as redis:
        key = stream_key("log", shard_of(SCOPE, shards=2))
        ((_, fields),) = redis.xrange(key)
        packed = bytearray(fields[b"e"])
        # The size of the payload is one less than what follows.
        packed[packed.index(b"unmistakable") - 1] -= 1
        redis.xadd(key, {"e": bytes(packed)})
    moved(spark, options)
    assert warehouse.rows("SELECT count() AS n FROM message_log") == [{"n": 1}]
    rejects = warehouse.rows("SELECT metric, reason, events FROM metric_rejects")
    assert rejects == [{"metric": "log", "reason": "unreadable lives", "events": 1}]


@pytest.fixture
def small_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Scripts whose calls log little."""
    monkeypatch.setattr(log_layout, "LOG_CALL_BYTES", 10_000)
    script.cache_clear()
    yield
    script.cache_clear()


async def test_what_one_call_has_no_room_for_is_logged_without_what_it_carried(
    small_calls: None, streams_url: str
) -> None:
    broker = RedisBroker(RedisConnection(url=streams_url), shards=2)
    await broker.define(LONG, QueueSpec(name="long", log_ms=DAY_MS))
    await broker.enqueue(LONG, [NewMessage(payload=b"x" * 4_000) for _ in range(5)])
    await broker.ack([one.lease for one in await broker.dequeue(LONG, consumer="tester", limit=5)])
    logged = await emitted_log(broker, LONG)
    assert [(one.left_out, len(one.payload)) for one in logged] == [(False, 4_000)] * 2 + [(True, 0)] * 3
    assert {one.life.payload_bytes for one in logged} == {4_000}
    await broker.aclose()


@pytest.mark.fault
def test_the_log_holds_each_message_once_although_the_pipeline_is_killed(
    streams_url: str, warehouse_url: str, tmp_path: Path
) -> None:
    rig = Rig(redis_url=streams_url, clickhouse_url=warehouse_url, folder=tmp_path, shards=2)
    chance, ended = random.Random(7), 0
    rig.start()
    try:
        for kill in (rig.kill, lambda: kill_child(rig, is_python_worker, chance), rig.kill):
            for _ in range(20):
                asyncio.run(_work_off(streams_url, 500))
                ended += 500
            kill()
            rig.ensure()
        with closing(ClickHouseConnection(warehouse_url)) as warehouse:
            account = (
                "SELECT count() AS rows, uniqExact(number) AS numbers, max(number) AS last FROM message_log"
            )
            wanted = {"rows": ended, "numbers": ended, "last": ended}
            deadline = time.monotonic() + 120
            while warehouse.rows(account)[0] != wanted and time.monotonic() < deadline:
                rig.ensure()
                time.sleep(0.2)
            assert warehouse.rows(account) == [wanted]
    finally:
        rig.stop()


async def _work_off(streams_url: str, count: int) -> None:
    broker = RedisBroker(RedisConnection(url=streams_url), shards=2)
    await broker.define(LONG, QueueSpec(name="long", log_ms=DAY_MS))
    await broker.enqueue(LONG, [NewMessage(payload=b"%d" % n * 100) for n in range(count)])
    await broker.ack([one.lease for one in await broker.dequeue(LONG, consumer="tester", limit=count)])
    await broker.aclose()
