"""Switching metrics off and on: no event while off, and every queue is heard again afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.servers import RunningServer, redis_server, start_server
from support.streams import event_bytes
from weir.broker.broker import HEARTBEAT_MS
from weir.broker.metrics_switch import OLD_SWITCH, MetricsSwitch
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.errors import BrokerUnavailable
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import QueueSpec
from weir.telemetry.codec import MetricEvent, unpack
from weir.telemetry.events import QUEUE, QueueOperation
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import stream_key
from weir.testing.clocks import ManualClock

SHARDS = 4


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    running = start_server(lambda port: redis_server(tmp_path / "redis", port=port), log_folder=tmp_path)
    yield running
    running.stop()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(server: RunningServer, clock: ManualClock) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(RedisConnection(url=server.url), shards=SHARDS, clock=clock)
    yield broker
    await broker.aclose()


@pytest.fixture
async def switch(server: RunningServer, clock: ManualClock) -> AsyncIterator[MetricsSwitch]:
    switch = MetricsSwitch(RedisConnection(url=server.url, timeout_s=1), shards=SHARDS, clock=clock)
    yield switch
    await switch.aclose()


@pytest.fixture
async def queue(broker: RedisBroker, environment: EnvironmentRef) -> QueueRef:
    queue = environment.queue("quiet")
    await broker.define(queue, QueueSpec(name="quiet"))
    return queue


async def push(broker: RedisBroker, queue: QueueRef, count: int = 1) -> None:
    await broker.enqueue(queue, [NewMessage(payload=b"x") for _ in range(count)])


async def drain(broker: RedisBroker, queue: QueueRef) -> None:
    while got := await broker.dequeue(queue, consumer="c", limit=100):
        await broker.ack([one.lease for one in got])


async def off(switch: MetricsSwitch) -> None:
    (await switch.switch(on=False, by="anna", reason="a load test")).require_all()


async def on(switch: MetricsSwitch) -> None:
    (await switch.switch(on=True, by="ben", reason="it is over")).require_all()


async def events(broker: RedisBroker, queue: QueueRef) -> list[MetricEvent]:
    key = stream_key("queue", shard_of(queue.scope, shards=SHARDS))
    entries = await broker._runner.client.execute_command("XRANGE", key, "-", "+")
    found = [unpack(QUEUE, event_bytes(fields)) for _, fields in entries]
    return [event for event in found if event.dimensions[3] == queue.queue]


async def beat(broker: RedisBroker, clock: ManualClock, queue: QueueRef) -> int:
    clock.advance(HEARTBEAT_MS)
    return await broker.heartbeat(shard_of(queue.scope, shards=SHARDS))


async def test_a_quiet_queue_is_heard_again_after_off_and_on(
    broker: RedisBroker, switch: MetricsSwitch, queue: QueueRef, clock: ManualClock
) -> None:
    await push(broker, queue, 3)
    await off(switch)
    assert [await beat(broker, clock, queue) for _ in range(3)] == [0, 0, 0]
    await on(switch)
    assert [await beat(broker, clock, queue) for _ in range(2)] == [1, 1]
    assert (await events(broker, queue))[-1].values["queue_length"] == 3


async def test_no_event_is_emitted_while_off(
    broker: RedisBroker, switch: MetricsSwitch, queue: QueueRef, clock: ManualClock
) -> None:
    await push(broker, queue)
    await off(switch)
    await push(broker, queue, 5)
    await drain(broker, queue)
    await broker.pause(queue)
    await beat(broker, clock, queue)
    assert len(await events(broker, queue)) == 1
    await on(switch)
    await broker.resume(queue)
    assert len(await events(broker, queue)) == 2


async def test_a_queue_that_was_emptied_while_off_tells_its_odometers_afterwards(
    broker: RedisBroker, switch: MetricsSwitch, queue: QueueRef, clock: ManualClock
) -> None:
    await off(switch)
    await push(broker, queue, 7)
    await drain(broker, queue)
    clock.advance(60_000)
    await on(switch)
    assert [await beat(broker, clock, queue) for _ in range(2)] == [1, 0], "once, as it is empty"
    (event,) = await events(broker, queue)
    assert list(QueueOperation)[event.values["operation"]] is QueueOperation.HEARTBEAT
    assert (event.values["queue_length"], event.values["acked_total"]) == (0, 7)
    assert event.values["acked"] == 0, "the counts themselves are lost"


async def test_a_queue_that_an_earlier_version_dropped_is_heard_again(
    broker: RedisBroker, queue: QueueRef, clock: ManualClock
) -> None:
    """Earlier versions took quiet queues out of `touched` while metrics were off."""
    for number in range(1_200):
        other = queue.scope.queue(f"q{number}")
        await broker.define(other, QueueSpec(name=other.queue))
        await push(broker, other)
    await push(broker, queue)
    shard = shard_of(queue.scope, shards=SHARDS)
    await broker._runner.client.execute_command("DEL", f"weir:{{shard-{shard}}}:touched")
    for _ in range(2):
        await beat(broker, clock, queue)
    key = stream_key("queue", shard)
    entries = (await broker._runner.client.execute_command("XRANGE", key, "-", "+"))[1_201:]
    heard = {unpack(QUEUE, event_bytes(fields)).dimensions[3] for _, fields in entries}
    assert len(heard) == 1_201, "in steps, and everything within two rounds"


async def test_switching_twice_keeps_the_first_time_and_reason(
    switch: MetricsSwitch, clock: ManualClock
) -> None:
    began_ms = clock.now_ms()
    await off(switch)
    clock.advance(1_000)
    again = await switch.switch(on=False, by="ben", reason="another")
    assert {(one.off, one.since_ms, one.by, one.reason) for one in again.shards} == {
        (True, began_ms, "anna", "a load test")
    }
    await on(switch)
    clock.advance(1_000)
    await on(switch)
    (state,) = {(one.off, one.since_ms, one.by) for one in (await switch.read()).shards}
    assert state == (False, began_ms + 1_000, "ben")
    (span,) = (await switch.read()).shards[0].spans
    assert (span.from_ms, span.to_ms, span.by, span.ended_by) == (began_ms, began_ms + 1_000, "anna", "ben")


async def test_an_act_that_was_cut_short_is_seen_and_repeated(
    server: RunningServer, switch: MetricsSwitch, clock: ManualClock
) -> None:
    part = MetricsSwitch(RedisConnection(url=server.url), shards=2, clock=clock)
    await off(part)
    await part.aclose()
    assert (await switch.read()).mixed
    clock.advance(5_000)
    await off(switch)
    state = await switch.read()
    assert (state.off, state.mixed) == (True, False)
    assert state.shards[0].since_ms < state.shards[3].since_ms, "each shard tells its own span"


async def test_a_stopped_server_is_named_with_its_shards(
    server: RunningServer, switch: MetricsSwitch
) -> None:
    await asyncio.to_thread(server.kill)
    state = await switch.switch(on=False, by="anna", reason="")
    assert (list(state.shards), sorted(state.silent)) == ([], [0, 1, 2, 3])
    with pytest.raises(BrokerUnavailable, match="shards 0, 1, 2, 3"):
        state.require_all()
    await asyncio.to_thread(server.start)
    await off(switch)


async def test_a_full_server_can_still_be_switched_off(
    broker: RedisBroker, switch: MetricsSwitch, queue: QueueRef
) -> None:
    await push(broker, queue)
    for shard in range(SHARDS):
        await broker.heartbeat(shard)
    await broker._runner.client.execute_command("CONFIG", "SET", "maxmemory", "1")
    await off(switch)
    assert (await switch.read()).off


async def test_the_key_of_earlier_versions_is_taken_over(broker: RedisBroker, switch: MetricsSwitch) -> None:
    client = broker._runner.client
    await client.execute_command("SET", OLD_SWITCH, "0")
    await switch.take_over()
    assert (await switch.read()).off
    assert await client.execute_command("EXISTS", OLD_SWITCH) == 0
    await on(switch)
    await switch.take_over()
    assert not (await switch.read()).off


async def test_old_spans_are_dropped_when_there_are_too_many(
    server: RunningServer, switch: MetricsSwitch, clock: ManualClock
) -> None:
    for _ in range(105):
        clock.advance(10)
        await off(switch)
        clock.advance(10)
        await on(switch)
    store = StreamStore(server.url)
    spans = (await asyncio.to_thread(store.read_switches, shards=SHARDS))[2].spans
    store.close()
    assert len(spans) == 100
    assert spans[-1].to_ms == clock.now_ms()
