"""The broker under crashes: nothing accepted is lost, nothing is handed out under two leases."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from support.direct_broker import DirectBroker
from support.servers import RunningServer, redis_server, start_server
from support.streams import event_bytes
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection, connect
from weir.broker.scripts import VERBS
from weir.errors import BrokerUnavailable, Unavailable
from weir.model.ids import NamedCall
from weir.model.message import Enqueue, Failure, NewMessage, Settlement
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, QueueSpec
from weir.telemetry.codec import unpack
from weir.telemetry.events import QUEUE, QueueOperation
from weir.telemetry.streams import stream_key, switch_key
from weir.testing.clocks import ManualClock
from weir.testing.ledger import Ledger

SPEC = QueueSpec(name="work", delivery=DeliveryPolicy(max_attempts=1_000, lease_ms=5_000))
CONSUMER = Path(__file__).with_name("fault_consumer.py")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    running = start_server(lambda port: redis_server(tmp_path / "redis", port=port), log_folder=tmp_path)
    yield running
    running.stop()


BOTH_KINDS = pytest.mark.parametrize(
    "broker", [pytest.param(RedisBroker, id="served"), pytest.param(DirectBroker, id="direct")], indirect=True
)
"""The broker as the API has it, and as clients in direct mode have it; at both ends of the queue."""


@pytest.fixture
async def broker(server: RunningServer, request: pytest.FixtureRequest) -> AsyncIterator[RedisBroker]:
    kind: type[RedisBroker] = getattr(request, "param", RedisBroker)
    broker = kind(RedisConnection(url=server.url, timeout_s=1))
    yield broker
    await broker.aclose()


@pytest.fixture
async def queue(broker: RedisBroker, environment: EnvironmentRef) -> QueueRef:
    queue = environment.queue("work")
    await broker.define(queue, SPEC)
    return queue


async def produce(broker: RedisBroker, queue: QueueRef, ledger: Ledger, *, until: asyncio.Event) -> None:
    while not until.is_set():
        batch = [NewMessage(payload=b"x" * 50) for _ in range(10)]
        ledger.offer(message.id for message in batch)
        try:
            answers = await broker.enqueue(queue, batch)
        except Unavailable:
            await asyncio.sleep(0.02)
            continue
        ledger.accept(answer.message_id for answer in answers if answer.outcome is Enqueue.ACCEPTED)
        await asyncio.sleep(0.002)


async def crash_rounds(server: RunningServer, broker: RedisBroker, folder: Path, *, rounds: int) -> Ledger:
    """Produce and consume while the server and the consumers are killed in turn."""
    organization = uuid4().hex
    queue = EnvironmentRef(organization=organization, project="p", environment="e").queue("work")
    await broker.define(queue, SPEC)
    ledger, over = Ledger(), asyncio.Event()
    kind = "direct" if isinstance(broker, DirectBroker) else "served"
    producer = asyncio.create_task(produce(broker, queue, ledger, until=over))
    files: list[Path] = []

    async def start_consumer() -> asyncio.subprocess.Process:
        files.append(folder / f"consumer-{len(files)}.jsonl")
        files[-1].touch()
        return await asyncio.create_subprocess_exec(
            sys.executable, str(CONSUMER), server.url, organization, str(files[-1]), kind
        )

    consumers = [await start_consumer() for _ in range(2)]
    for _ in range(rounds):
        await _written(files[-1])
        await asyncio.sleep(0.3)
        await asyncio.to_thread(server.kill)
        victim = consumers.pop(0)
        victim.send_signal(signal.SIGKILL)
        await victim.wait()
        await asyncio.to_thread(server.start)
        consumers.append(await start_consumer())
    over.set()
    await producer
    await _drained(broker, queue)
    for consumer in consumers:
        consumer.send_signal(signal.SIGKILL)
        await consumer.wait()
    for file in files:
        ledger.read(file)
    return ledger


async def _written(file: Path) -> None:
    async with asyncio.timeout(60):
        while file.stat().st_size == 0:  # noqa: ASYNC110, ASYNC240 another process writes it
            await asyncio.sleep(0.02)


async def _drained(broker: RedisBroker, queue: QueueRef) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(Unavailable):
                state = await broker.state(queue)
                if state.depth + state.running == 0:
                    return
            await asyncio.sleep(0.05)


@BOTH_KINDS
async def test_two_crashes_of_server_and_consumers_lose_nothing(
    server: RunningServer, broker: RedisBroker, tmp_path: Path
) -> None:
    ledger = await crash_rounds(server, broker, tmp_path, rounds=2)
    assert len(ledger.accepted) > 100
    assert ledger.problems() == []


@pytest.mark.fault
@BOTH_KINDS
async def test_twenty_crashes_of_server_and_consumers_lose_nothing(
    server: RunningServer, broker: RedisBroker, tmp_path: Path
) -> None:
    ledger = await crash_rounds(server, broker, tmp_path, rounds=20)
    assert len(ledger.accepted) > 1_000
    assert ledger.problems() == []


def test_the_checker_sees_what_is_wrong() -> None:
    ledger = Ledger()
    ledger.offer(["a", "b", "c", "d"])
    ledger.accept(["a", "b", "c"])
    ledger.settle(["b"])
    ledger.settle_done(["b", "b"])
    ledger.deliveries = {"c": [(0, 10), (9, 19)], "x": [(0, 1)]}
    problems = ledger.problems(remaining=["b", "c"])
    assert [problem.partition(":")[0] for problem in problems] == [
        "lost",
        "phantom",
        "settled twice",
        "in two places",
        "leased twice at once",
    ]


async def test_a_full_server_refuses_messages_and_can_still_be_drained(
    broker: RedisBroker, queue: QueueRef
) -> None:
    client = broker._runner.client
    await broker.enqueue(queue, [NewMessage(payload=b"x" * 1_000) for _ in range(100)])
    await client.execute_command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(BrokerUnavailable, match="out of memory"):
        await broker.enqueue(queue, [NewMessage(payload=b"y")])
    assert (await broker.state(queue)).odometers["enqueued"] == 100
    got = await broker.dequeue(queue, consumer="c", limit=100)
    assert len(got) == 100
    assert await broker.extend([got[0].lease], lease_ms=60_000) == [Settlement.DONE]
    assert await broker.nack([Failure(lease=got[1].lease, error="e")]) == [Settlement.DONE]
    assert await broker.dead_letter([Failure(lease=got[2].lease, error="e")]) == [Settlement.DONE]
    assert set(await broker.ack([one.lease for one in got[3:]])) == {Settlement.DONE}
    shard = shard_of(queue.scope, shards=broker.shards)
    (dead,) = await broker.take_dead(shard)
    await broker.drop_dead(shard, [dead.message_id])
    await broker.sweep(shard)
    assert (await broker.state(queue)).odometers["acked"] == 97


@pytest.mark.parametrize("broken", ["wrong type", "full", "missing", "off"])
async def test_whatever_happens_to_metrics_the_queue_answers_the_same(
    broker: RedisBroker, queue: QueueRef, broken: str
) -> None:
    client, shard = broker._runner.client, shard_of(queue.scope, shards=broker.shards)
    stream = stream_key("queue", shard)
    if broken == "wrong type":
        await client.execute_command("DEL", stream)
        await client.execute_command("SET", stream, "not a stream")
    elif broken == "full":
        await client.execute_command("DEL", stream)
        await client.execute_command("XADD", stream, "18446744073709551615-18446744073709551615", "e", "x")
    elif broken == "missing":
        await client.execute_command("DEL", stream)
    else:
        await client.execute_command("HSET", switch_key(shard), "state", "off")
    (accepted,) = await broker.enqueue(queue, [NewMessage(payload=b"x")])
    (got,) = await broker.dequeue(queue, consumer="c")
    assert accepted.outcome is Enqueue.ACCEPTED
    assert await broker.ack([got.lease]) == [Settlement.DONE]
    assert (await broker.state(queue)).odometers["acked"] == 1
    length = await client.execute_command("XLEN", stream) if broken in ("missing", "off") else None
    assert length == {"missing": 3, "off": 0}.get(broken)


async def test_a_server_that_lost_its_data_is_noticed(broker: RedisBroker) -> None:
    assert await broker.epoch() is None
    assert await broker.begin_epoch("first") == "first"
    assert await broker.begin_epoch("second") == "first"
    await broker._runner.client.execute_command("FLUSHALL")
    assert await broker.epoch() is None


async def test_a_server_keeps_the_number_of_shards_that_was_written_first(
    broker: RedisBroker, server: RunningServer
) -> None:
    assert await broker.written_shards() is None
    await broker.write_shards()
    assert await broker.written_shards() == 4
    other = RedisBroker(RedisConnection(url=server.url), shards=8)
    try:
        await other.write_shards()
        assert await other.written_shards() == 4
    finally:
        await other.aclose()


async def test_nothing_is_done_on_a_server_that_lost_its_data(
    broker: RedisBroker, queue: QueueRef, server: RunningServer
) -> None:
    shard, client = shard_of(queue.scope, shards=4), connect(RedisConnection(url=server.url))
    await broker.hold_epoch("first")
    await broker.enqueue(queue, [NewMessage(payload=b"x")])
    (got,) = await broker.dequeue(queue, consumer="c")
    await client.execute_command("FLUSHALL")
    calls = [
        lambda: broker.define(queue, SPEC),
        lambda: broker.enqueue(queue, [NewMessage(payload=b"x")]),
        lambda: broker.enqueue(queue, [NewMessage(payload=b"x")], entry=NamedCall(slot="s", id="1")),
        lambda: broker.dequeue(queue, consumer="c"),
        lambda: broker.ack([got.lease]),
        lambda: broker.states(queue.scope),
        lambda: broker.sweep(shard),
        lambda: broker.now_ms(shard),
        lambda: broker.allow_direct(shard, until_ms=1),
    ]
    for call in calls:
        with pytest.raises(BrokerUnavailable, match="lost its data") as refused:
            await call()
        assert refused.value.extra == {"refused": True}
    assert await client.execute_command("DBSIZE") == 0
    # A process that starts now is let in by `Epochs` alone.
    await broker.hold_epoch("first")
    await broker.define(queue, SPEC)
    assert await broker.dequeue(queue, consumer="c") == []
    await client.aclose()


async def test_every_script_looks_for_the_epoch_first(broker: RedisBroker) -> None:
    await broker.hold_epoch("first")
    await broker._runner.client.execute_command("FLUSHALL")
    for verb in VERBS:
        with pytest.raises(BrokerUnavailable, match="lost its data"):
            await broker._runner.run(verb, 0)


async def test_a_stopped_server_is_unavailable_within_a_second_and_comes_back(
    server: RunningServer, broker: RedisBroker, queue: QueueRef
) -> None:
    await asyncio.to_thread(server.kill)
    async with asyncio.timeout(1):
        with pytest.raises(BrokerUnavailable):
            await broker.enqueue(queue, [NewMessage(payload=b"x")])
    await asyncio.to_thread(server.start)
    (answer,) = await broker.enqueue(queue, [NewMessage(payload=b"x")])
    assert answer.outcome is Enqueue.ACCEPTED


async def test_a_queue_that_nobody_touches_still_shows_its_gauges(
    server: RunningServer, environment: EnvironmentRef
) -> None:
    clock = ManualClock()
    broker = RedisBroker(RedisConnection(url=server.url), clock=clock)
    queue, shard = environment.queue("stuck"), shard_of(environment, shards=broker.shards)
    await broker.define(queue, SPEC)
    await broker.define(environment.queue("empty"), SPEC)
    await broker.enqueue(queue, [NewMessage(payload=b"x")])
    beats = [await broker.heartbeat(shard)]
    for ms in (4_999, 1, 0, 5_000):
        clock.advance(ms)
        beats.append(await broker.heartbeat(shard))
    assert beats == [0, 0, 1, 0, 1]
    entries = await broker._runner.client.execute_command("XRANGE", stream_key("queue", shard), "-", "+")
    last = unpack(QUEUE, event_bytes(entries[-1][1]))
    assert (last.values["queue_length"], last.values["oldest_age_ms"]) == (1, 10_000)
    assert list(QueueOperation)[last.values["operation"]] is QueueOperation.HEARTBEAT
    (got,) = await broker.dequeue(queue, consumer="c")
    await broker.ack([got.lease])
    clock.advance(60_000)
    assert await broker.heartbeat(shard) == 0
    await broker.aclose()
