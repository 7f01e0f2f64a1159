"""The emitter: bounded, patient, and never in anybody's way."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from support.tcp_proxy import TcpProxy
from support.urls import with_database
from weir.model.ids import new_message_id
from weir.model.message import Delivery, LeaseRef
from weir.model.names import QueueRef
from weir.redis_client import connect
from weir.telemetry.codec import MetricEvent, unpack
from weir.telemetry.emitter import StreamEmitter
from weir.telemetry.events import WORKER, WORKER_LAG
from weir.telemetry.process_counts import ProcessCounts
from weir.telemetry.sampler import (
    LAG_QUEUES,
    LAGS_PER_EVENT,
    OTHER_QUEUES,
    Probes,
    ProcessIdentity,
    ProcessSampler,
)
from weir.telemetry.streams import stream_key, switch_key


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(with_database(redis_url, "7"))
    await client.flushdb()
    yield client
    await client.flushdb()
    await client.aclose()


def event(worker: str = "0", **values: int) -> MetricEvent:
    return MetricEvent(dimensions=("api", "host", worker, "1"), values=values)


def delivery(queue: str, *, wait_ms: int) -> Delivery:
    ref = QueueRef(organization="o", project="p", environment="e", queue=queue)
    return Delivery(
        lease=LeaseRef(queue=ref, message_id=new_message_id(), token="t"),
        payload=b"",
        headers={},
        key=None,
        priority=4,
        attempt=1,
        enqueued_at_ms=0,
        available_at_ms=0,
        lease_until_ms=0,
        wait_ms=wait_ms,
    )


async def sent(redis: Redis, shards: int) -> list[MetricEvent]:
    found = []
    for shard in range(shards):
        for _, fields in await redis.xrange(stream_key("worker", shard)):
            found.append(unpack(WORKER, fields[b"e"]))
    return found


async def test_what_is_emitted_reaches_the_streams_of_its_metric(redis: Redis) -> None:
    emitter = StreamEmitter(redis, shards=4)
    for worker in range(50):
        emitter.emit(WORKER, event(str(worker), jobs_done=worker))
    await emitter.flush()
    assert sorted(item.values["jobs_done"] for item in await sent(redis, 4)) == list(range(50))
    assert emitter.counts.sent == 50


async def test_one_subject_stays_in_one_shard_and_in_order(redis: Redis) -> None:
    emitter = StreamEmitter(redis, shards=8)
    for number in range(20):
        emitter.emit(WORKER, event(jobs_done=number))
    await emitter.flush()
    lengths = [await redis.xlen(stream_key("worker", shard)) for shard in range(8)]
    assert sorted(lengths) == [0] * 7 + [20]
    assert [item.values["jobs_done"] for item in await sent(redis, 8)] == list(range(20))


async def test_a_full_buffer_drops_the_oldest_and_counts_them(redis: Redis) -> None:
    emitter = StreamEmitter(redis, shards=1, capacity=10)
    for number in range(25):
        emitter.emit(WORKER, event(jobs_done=number))
    await emitter.flush()
    assert [item.values["jobs_done"] for item in await sent(redis, 1)] == list(range(15, 25))
    assert emitter.counts.dropped == 15


async def test_events_for_a_shard_that_is_off_are_not_sent(redis: Redis) -> None:
    emitter = StreamEmitter(redis, shards=2)
    await redis.hset(switch_key(0), "state", "off")
    for worker in range(50):
        emitter.emit(WORKER, event(str(worker), jobs_done=worker))
    await emitter.flush()
    lengths = [await redis.xlen(stream_key("worker", shard)) for shard in range(2)]
    assert lengths[0] == 0
    assert 0 < lengths[1] < 50
    assert (emitter.counts.sent, emitter.counts.switched_off) == (lengths[1], 50 - lengths[1])
    await redis.hset(switch_key(0), "state", "on")
    emitter.emit(WORKER, event("0", jobs_done=1))
    await emitter.flush()
    assert emitter.counts.sent == lengths[1] + 1


async def test_events_wait_while_redis_is_away(redis: Redis, redis_url: str) -> None:
    async with TcpProxy.to(with_database(redis_url, "7")) as proxy:
        through = connect(proxy.url)
        emitter = StreamEmitter(through, shards=1)
        proxy.refuse()
        emitter.emit(WORKER, event(jobs_done=1))
        await emitter.flush()
        assert emitter.counts.failed_flushes == 1
        proxy.heal()
        await emitter.flush()
        assert emitter.counts.sent == 1
        await through.aclose()
    assert len(await sent(redis, 1)) == 1


async def test_what_cannot_be_packed_is_dropped_and_raises_nothing(redis: Redis) -> None:
    emitter = StreamEmitter(redis, shards=1)
    emitter.emit(WORKER, MetricEvent(dimensions=("x" * 300, "h", "0", "1"), values={}))
    emitter.emit(WORKER, MetricEvent(dimensions=("only one",), values={}))
    await emitter.flush()
    assert emitter.counts.dropped == 2
    assert await sent(redis, 1) == []


async def test_a_process_reports_weighted_samples_and_its_counts(redis: Redis) -> None:
    emitter = StreamEmitter(redis, shards=1)
    free = iter([5, 2, 9])
    probes = Probes(free_slots=lambda: next(free), pool_size=lambda: 10, internal_queue=lambda: 4)
    identity = ProcessIdentity(role="worker", hostname="h", worker_id="w1", pid=7)
    counts = ProcessCounts()
    sampler = ProcessSampler(identity, emitter, counts, probes=probes)
    counts.count_pushes(3)
    counts.count_pops([delivery("a", wait_ms=0), delivery("a", wait_ms=40), delivery("b", wait_ms=7)])
    counts.count_acks(1)
    counts.count_error()
    counts.count_retries([60_000, 0])
    for lag_s in (0.001, 0.004, 0.002):
        sampler.sample(lag_s=lag_s)
    sampler.flush()
    sampler.flush()
    await emitter.flush()
    (event,) = await sent(redis, 1)
    expected = {
        "samples": 3, "event_loop_lag_us_sum": 7_000, "event_loop_lag_us_max": 4_000, "free_slots_sum": 16,
        "free_slots_min": 2, "pool_size": 10, "internal_queue_sum": 12, "pushes": 3, "pops": 3, "acks": 1,
        "errors": 1, "lag_count": 3, "lag_ms_sum": 47, "lag_ms_max": 40, "backoff_sum": 3, "backoff_max": 1,
    }  # fmt: skip
    assert {name: event.values[name] for name in expected} == expected
    assert event.dimensions == ("worker", "h", "w1", "7")


async def lags_sent(redis: Redis) -> list[MetricEvent]:
    found = await redis.xrange(stream_key("worker_lag", 0))
    return [unpack(WORKER_LAG, fields[b"e"]) for _, fields in found]


async def test_lags_are_reported_by_queue_and_those_of_many_queues_together(redis: Redis) -> None:
    emitter, counts = StreamEmitter(redis, shards=1), ProcessCounts()
    identity = ProcessIdentity(role="api", hostname="h", worker_id="w1", pid=7)
    for number in range(LAG_QUEUES + 20):
        counts.count_pops([delivery(f"q{number}", wait_ms=number)] * (100 - number))
    ProcessSampler(identity, emitter, counts).flush()
    await emitter.flush()
    events = {event.dimensions: event.samples for event in await lags_sent(redis)}
    assert len(events) == LAG_QUEUES + 1
    assert events["w1", "o", "p", "e", "q49"] == (49,) * 51
    others = events["w1", *OTHER_QUEUES]
    assert sorted(set(others)) == list(range(LAG_QUEUES, LAG_QUEUES + 20))
    assert sum(map(len, events.values())) == sum(100 - number for number in range(LAG_QUEUES + 20))


async def test_many_lags_become_several_events(redis: Redis) -> None:
    emitter, counts = StreamEmitter(redis, shards=1), ProcessCounts()
    counts.count_pops([delivery("q", wait_ms=number) for number in range(2 * LAGS_PER_EVENT + 1)])
    ProcessSampler(ProcessIdentity(role="api"), emitter, counts).flush()
    await emitter.flush()
    events = await lags_sent(redis)
    assert [len(event.samples) for event in events] == [LAGS_PER_EVENT, LAGS_PER_EVENT, 1]
    assert [lag for event in events for lag in event.samples] == list(range(2 * LAGS_PER_EVENT + 1))


class Leaving(Exception):
    """The process ends."""


async def test_a_sampler_measures_how_late_the_loop_is_and_flushes_on_the_way_out(redis: Redis) -> None:
    emitter = StreamEmitter(redis, shards=1)
    now = [100.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds + 0.25
        if now[0] > 102:
            raise Leaving

    sampler = ProcessSampler(
        ProcessIdentity(role="api"), emitter, ProcessCounts(), monotonic=lambda: now[0], sleep=sleep
    )
    with pytest.raises(Leaving):
        await sampler.run()
    (event,) = await sent(redis, 1)
    assert event.values["samples"] == 1
    assert 249_000 <= event.values["event_loop_lag_us_max"] <= 251_000
