"""The stream of lives: bounded in bytes, counted by its odometer, silent while metrics are off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from support.lives import emitted_lives, life_events
from weir.broker import metrics
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.broker.scripts import script
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import QueueSpec
from weir.telemetry.streams import stream_key


@pytest.fixture
def queue(environment: EnvironmentRef) -> QueueRef:
    return environment.queue("work")


@pytest.fixture
async def broker(redis_url: str, queue: QueueRef) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(RedisConnection(url=redis_url))
    await broker.define(queue, QueueSpec(name=queue.queue))
    yield broker
    await broker.aclose()


async def process(broker: RedisBroker, queue: QueueRef, count: int) -> None:
    await broker.enqueue(queue, [NewMessage(payload=b"x", key="k" * 200) for _ in range(count)])
    await broker.ack([one.lease for one in await broker.dequeue(queue, consumer="c", limit=count)])


async def memory_of(broker: RedisBroker, key: str) -> int:
    used: int = await broker._runner.client.execute_command("MEMORY", "USAGE", key)
    return used


@pytest.fixture
def small_stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Scripts that let the lives of a shard take little."""
    monkeypatch.setattr(metrics, "LIFE_STREAM_BYTES", 100_000)
    script.cache_clear()
    yield 100_000
    script.cache_clear()


async def test_the_stream_of_lives_is_bounded_in_bytes(
    small_stream: int, broker: RedisBroker, queue: QueueRef
) -> None:
    key = stream_key("life", shard_of(queue.scope, shards=broker.shards))
    for _ in range(12):
        await process(broker, queue, 200)
    assert await memory_of(broker, key) < 1.2 * small_stream
    events = await life_events(broker, queue)
    assert events[-1].values["lives_total"] == 2_400
    assert sum(event.values["lives"] for event in events) < 2_400


async def test_a_call_writes_one_entry_per_queue_and_more_if_they_are_long(
    broker: RedisBroker, queue: QueueRef
) -> None:
    await process(broker, queue, 10)
    await process(broker, queue, 100)
    counts = [event.values["lives"] for event in await life_events(broker, queue)]
    assert counts[0] == 10
    assert (sum(counts), len(counts) > 3) == (110, True)


async def test_lives_are_neither_written_nor_counted_while_metrics_are_off(
    broker: RedisBroker, redis_url: str, queue: QueueRef
) -> None:
    silent = RedisBroker(RedisConnection(url=redis_url), metrics=False)
    await process(silent, queue, 5)
    await silent.aclose()
    assert await emitted_lives(broker, queue) == []
    await process(broker, queue, 1)
    assert [event.values["lives_total"] for event in await life_events(broker, queue)] == [1]


async def test_a_forgotten_queue_goes_on_counting_its_lives(broker: RedisBroker, queue: QueueRef) -> None:
    await process(broker, queue, 3)
    await broker.forget(queue)
    await broker.define(queue, QueueSpec(name=queue.queue))
    await process(broker, queue, 2)
    assert [event.values["lives_total"] for event in await life_events(broker, queue)] == [3, 5]
