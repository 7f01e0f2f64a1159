"""Lives go the whole way: from the broker's stream into ClickHouse and the archive, each once."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from uuid import uuid4

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession
from redis import Redis
from tests.pipeline.audits import audited
from tests.pipeline.test_spark import moved

from support.lives import emitted_lives
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.ids import MessageId
from weir.model.lives import Life, LifeOutcome
from weir.model.message import Delivery, Failure, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.pipeline.drift_audit import AuditReport, PipelineAuditor
from weir.pipeline.job import PipelineOptions
from weir.pipeline.rebuild import rebuild
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import stream_key
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.reading.lives import LifeReader
from weir.warehouse.reading.reader import Reader

SCOPE = EnvironmentRef(organization="o", project="p", environment="e")
QUEUES = {
    "plain": QueueSpec(name="plain", delivery=DeliveryPolicy(max_attempts=2, initial_backoff_ms=0)),
    "keyed": QueueSpec(name="keyed", ordering=Ordering.PER_KEY),
}
ALL_TIME = {"from_ms": 0, "to_ms": 4_000_000_000_000}


@pytest.fixture
async def broker(streams_url: str) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(RedisConnection(url=streams_url), shards=2)
    for name, spec in QUEUES.items():
        await broker.define(SCOPE.queue(name), spec)
    yield broker
    await broker.aclose()


@pytest.fixture
async def lives(warehouse_url: str) -> AsyncIterator[LifeReader]:
    reader = Reader(warehouse_url)
    yield LifeReader(reader)
    await reader.aclose()


async def take(broker: RedisBroker, queue: QueueRef) -> list[Delivery]:
    return await broker.dequeue(queue, consumer="tester", limit=100)


async def live_and_end(broker: RedisBroker, *, payload: bytes = b"x") -> None:
    """Messages that end in every way, in two queues."""
    plain, keyed = SCOPE.queue("plain"), SCOPE.queue("keyed")
    await broker.enqueue(plain, [NewMessage(payload=payload, key=f"k{n % 3}") for n in range(40)])
    failing, cancelled, *others = await take(broker, plain)
    await broker.nack([Failure(lease=failing.lease, delay_ms=0)])
    await broker.cancel(plain, [cancelled.message_id])
    await broker.ack([replace(one.lease, handler_ms=7) for one in others])
    (again,) = await take(broker, plain)
    await broker.nack([Failure(lease=again.lease)])
    await broker.enqueue(keyed, [NewMessage(payload=payload, key="same") for _ in range(3)])
    for _ in range(3):
        await broker.ack([one.lease for one in await take(broker, keyed)])


def by_id(lives: Sequence[Life]) -> dict[str, Life]:
    return {life.message_id: life for life in lives}


async def test_every_life_lands_once_and_is_found_by_id_key_and_time(
    spark: SparkSession, options: PipelineOptions, broker: RedisBroker, lives: LifeReader
) -> None:
    await live_and_end(broker)
    emitted = {name: by_id(await emitted_lives(broker, SCOPE.queue(name))) for name in QUEUES}
    assert {name: len(found) for name, found in emitted.items()} == {"plain": 40, "keyed": 3}
    moved(spark, options)
    for life in emitted["plain"].values():
        assert await lives.find(SCOPE, life.message_id) == life
    everything = {"from_ms": 0, "to_ms": 4_000_000_000_000, "limit": 200}
    for name in QUEUES:
        page = await lives.of_queue(SCOPE.queue(name), **everything)
        assert by_id(page.lives) == emitted[name]
        assert [one.ended_at_ms for one in page.lives] == sorted(
            (one.ended_at_ms for one in page.lives), reverse=True
        )
    keyed = await lives.of_key(SCOPE, "k1", queue="plain")
    assert by_id(keyed.lives) == {
        message_id: life for message_id, life in emitted["plain"].items() if life.key == "k1"
    }
    dead = await lives.of_queue(SCOPE.queue("plain"), outcomes=[LifeOutcome.DEAD], **everything)
    assert [life.attempts for life in dead.lives] == [2]
    other = EnvironmentRef(organization="o", project="p", environment="other")
    assert await lives.find(other, dead.lives[0].message_id) is None


async def test_a_life_is_found_whatever_its_id_says_of_its_time(
    spark: SparkSession, options: PipelineOptions, broker: RedisBroker, lives: LifeReader
) -> None:
    latest = f"{'f' * 8}-ffff-7fff-8fff-{'f' * 12}"
    ids = [MessageId(text) for text in (str(uuid4()), "00000000-0001-7000-8000-000000000001", latest)]
    queue = SCOPE.queue("plain")
    await broker.enqueue(queue, [NewMessage(payload=b"x", id=one) for one in ids])
    await broker.ack([one.lease for one in await take(broker, queue)])
    moved(spark, options)
    for one in ids:
        life = await lives.find(SCOPE, one)
        assert life is not None
        assert life.message_id == one


async def test_pages_of_lives_hold_each_once(
    spark: SparkSession, options: PipelineOptions, broker: RedisBroker, lives: LifeReader
) -> None:
    await live_and_end(broker)
    moved(spark, options)
    found: list[Life] = []
    cursor = None
    while True:
        page = await lives.of_queue(
            SCOPE.queue("plain"), from_ms=0, to_ms=4_000_000_000_000, limit=7, cursor=cursor
        )
        found += page.lives
        cursor = page.cursor
        if cursor is None:
            break
    assert len(found) == len(by_id(found)) == 40


async def test_lives_are_exact_after_lost_checkpoints_and_a_rebuild(
    spark: SparkSession, options: PipelineOptions, broker: RedisBroker, warehouse: ClickHouseConnection
) -> None:
    await live_and_end(broker)
    moved(spark, options)
    shutil.rmtree(options.checkpoint)
    with Redis.from_url(options.redis_url) as redis:
        redis.delete("weir:pipeline:plan")
    moved(spark, options)
    await live_and_end(broker)
    moved(spark, options)
    everything = "SELECT * FROM message_lives ORDER BY message_id"
    before = warehouse.rows(everything)
    assert len(before) == 86
    ledger = "SELECT queue, sum(lives) AS lives, max(lives_total) AS total FROM life_ledger GROUP BY queue"
    accounts = {row["queue"]: (row["lives"], row["total"]) for row in warehouse.rows(ledger)}
    assert accounts == {"plain": (80, 80), "keyed": (6, 6)}

    warehouse.command("TRUNCATE TABLE message_lives")
    rebuild(spark, options, **ALL_TIME, metrics=("life",))
    assert warehouse.rows(everything) == before
    assert {row["queue"]: (row["lives"], row["total"]) for row in warehouse.rows(ledger)} == accounts


def audit(options: PipelineOptions, warehouse: ClickHouseConnection) -> AuditReport:
    store = StreamStore(options.redis_url)
    try:
        auditor = PipelineAuditor(store, warehouse, metrics=["queue", "life"], shards=options.shards)
        return audited(auditor)
    finally:
        store.close()


async def test_the_audit_compares_lives_with_their_odometer_and_explains_what_a_gap_took(
    spark: SparkSession, options: PipelineOptions, broker: RedisBroker, warehouse: ClickHouseConnection
) -> None:
    await live_and_end(broker)
    moved(spark, options)
    report = audit(options, warehouse)
    assert (report.drift, report.lives, report.life_drift) == (0, 43, 0)

    await live_and_end(broker)
    with Redis.from_url(options.redis_url) as redis:
        for shard in range(2):
            redis.xtrim(stream_key("life", shard), maxlen=0, approximate=False)
    await live_and_end(broker)
    moved(spark, options)
    report = audit(options, warehouse)
    assert (report.drift, report.lives, report.life_drift) == (0, 86, 0)
    lost = warehouse.rows("SELECT queue, sum(lives) AS lives FROM life_losses GROUP BY queue ORDER BY queue")
    assert lost == [{"queue": "keyed", "lives": 3}, {"queue": "plain", "lives": 40}]

    await live_and_end(broker)
    with Redis.from_url(options.redis_url) as redis:
        for shard in range(2):
            entries = redis.xrange(stream_key("life", shard))
            # What is dropped at an end is a gap, and this vanishes in the middle.
            for entry, _ in entries[2:3]:
                redis.xdel(stream_key("life", shard), entry)
    moved(spark, options)
    report = audit(options, warehouse)
    assert report.drift == report.life_drift == report.ledger_drift > 0
    assert [row["counters"] for row in report.drifting] == [{"lives": report.life_drift}]


async def test_an_entry_with_lives_that_cannot_be_read_is_set_aside(
    spark: SparkSession, options: PipelineOptions, broker: RedisBroker, warehouse: ClickHouseConnection
) -> None:
    await live_and_end(broker)
    with Redis.from_url(options.redis_url) as redis:
        for shard in range(2):
            key = stream_key("life", shard)
            for _, fields in redis.xrange(key):
                packed = bytearray(fields[b"e"])
                # The form of the first record is one that no program knows.
                packed[packed.index(b"plain" if b"plain" in packed else b"keyed") + 5 + 2] ^= 0xFF
                redis.xadd(key, {"e": bytes(packed)})
    moved(spark, options)
    (rejected,) = warehouse.rows(
        "SELECT reason, sum(events) AS events FROM metric_rejects WHERE metric = 'life' GROUP BY reason"
    )
    assert rejected["reason"] == "unreadable lives"
    assert warehouse.rows("SELECT count() AS count FROM message_lives") == [{"count": 43}]
