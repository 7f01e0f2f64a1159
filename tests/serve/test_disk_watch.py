"""The disk of Redis gets full: what puts messages in is refused in time, and what takes them out goes on."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace

import pytest

from support.waiting import until
from weir.admission.admission import Admission
from weir.broker.broker import GateRule
from weir.broker.disk_room import DiskRoom
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.errors import BrokerUnavailable
from weir.exchange.admit import AnswerTally, Overflow
from weir.model.ids import CallSlots
from weir.model.message import Failure, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.operations.gates import is_unknown
from weir.operations.model import Reason
from weir.redis_client import connect
from weir.serve.disk_watch import DiskFloors, DiskWatch
from weir.spec.ir import QueueSpec

SHARDS = 2
FLOORS = DiskFloors(refuse_bytes=1_000_000, rewrite_bytes=500_000)


@pytest.fixture
async def broker(redis_url: str) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(RedisConnection(url=redis_url), shards=SHARDS)
    yield broker
    await broker.aclose()


@pytest.fixture
async def watch(redis_url: str) -> AsyncIterator[DiskWatch]:
    room = DiskRoom(RedisConnection(url=redis_url), shards=SHARDS)
    client = connect(redis_url)
    yield DiskWatch(client, room, url=redis_url, floors=FLOORS)
    await room.allow()
    await room.aclose()
    await client.aclose()


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Says how many bytes are free on every disk."""

    def say(count: int) -> None:
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=count, f_frsize=1))

    return say


@pytest.fixture
async def queue(broker: RedisBroker, environment: EnvironmentRef) -> QueueRef:
    queue = environment.queue("work")
    await broker.define(queue, QueueSpec(name="work"))
    return queue


async def test_messages_are_refused_and_everything_else_goes_on(
    watch: DiskWatch, broker: RedisBroker, queue: QueueRef, free: Callable[[int], None]
) -> None:
    await broker.enqueue(queue, [NewMessage(payload=b"1"), NewMessage(payload=b"2")])
    free(999_999)
    await watch.look()
    slots = CallSlots("p")
    for entry in (GateRule.OBEY, slots.take()):
        with pytest.raises(BrokerUnavailable, match=r"the disk of Redis \(`/.*999,999 bytes free") as refused:
            await broker.enqueue(queue, [NewMessage(payload=b"3")], entry=entry)
        assert not is_unknown(refused.value), "it must not be queued as an operation"
        assert refused.value.retry_after_s == 5
    one, two = await broker.dequeue(queue, consumer="c", limit=2)
    await broker.ack([one.lease])
    await broker.nack([Failure(lease=two.lease, error="x")])
    free(2_000_000)
    await watch.look()
    assert len(await broker.enqueue(queue, [NewMessage(payload=b"4")])) == 1


async def test_a_refusal_ends_by_itself_if_nobody_repeats_it(
    redis_url: str, broker: RedisBroker, queue: QueueRef
) -> None:
    room = DiskRoom(RedisConnection(url=redis_url), shards=SHARDS)
    for shard in range(SHARDS):
        await room._runner.run("refuse_growth", shard, b"no room", 300)
    with pytest.raises(BrokerUnavailable, match="no room"):
        await broker.enqueue(queue, [NewMessage(payload=b"1")])

    async def taken() -> bool:
        try:
            return bool(await broker.enqueue(queue, [NewMessage(payload=b"1")]))
        except BrokerUnavailable:
            return False

    await until(taken)
    await room.aclose()


async def test_nothing_is_queued_in_postgresql_either(
    watch: DiskWatch, queue: QueueRef, free: Callable[[int], None]
) -> None:
    admission = Admission()
    admission.no_room = watch.refusal
    overflow = Overflow(writer=None, admission=admission, tally=AnswerTally(), rate=lambda: None)  # type: ignore[arg-type,return-value]
    free(10)
    await watch.look()
    with pytest.raises(BrokerUnavailable, match="10 bytes free"):
        await overflow.add([], reason=Reason.BROKER_UNAVAILABLE, must=True)


async def test_the_process_stays_ready_and_names_the_disk(
    watch: DiskWatch, free: Callable[[int], None]
) -> None:
    probe = watch.probe()
    assert not probe.essential
    await probe.check()
    free(10)
    await watch.look()
    with pytest.raises(BrokerUnavailable, match="10 bytes free"):
        await probe.check()
    samples = {family.name: family.samples[0].value async for family in watch.families()}
    assert samples == {"weir_redis_disk_free_bytes": 10, "weir_redis_disk_refuses": 1}


async def test_after_a_write_that_was_cut_short_messages_wait_for_a_rewrite(
    watch: DiskWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"process_id": await _pid(watch), "aof_last_write_status": "err", "aof_current_size": 1}
    commands: list[str] = []

    async def answer(command: str) -> dict[str, object]:
        commands.append(command)
        return told

    monkeypatch.setattr(watch._redis, "execute_command", answer)
    await watch.look()
    assert "was cut short" in str(watch.refusal())
    assert commands == ["INFO"], "a rewrite now would write what waits in memory twice"
    told |= {"aof_last_write_status": "ok"}
    await watch.look()
    assert commands[1:] == ["INFO", "BGREWRITEAOF"]
    told |= {"aof_rewrite_in_progress": 1}
    await watch.look()
    assert watch.refusal() is not None
    told |= {"aof_rewrite_in_progress": 0, "aof_last_bgrewrite_status": "ok"}
    await watch.look()
    assert watch.refusal() is None


async def test_below_the_lower_floor_the_file_is_rewritten_if_that_makes_room(
    watch: DiskWatch, free: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"aof_base_size": 100, "aof_current_size": 1_000, "used_memory_dataset": 1_000}
    told = {"process_id": await _pid(watch), **sizes}
    commands: list[str] = []

    async def answer(command: str) -> dict[str, object]:
        commands.append(command)
        return told

    monkeypatch.setattr(watch._redis, "execute_command", answer)
    free(400_000)
    await watch.look()
    assert commands == ["INFO"], "the file is small already"
    told |= {"aof_current_size": 50 << 20, "used_memory_dataset": 500_000}
    await watch.look()
    assert "BGREWRITEAOF" not in commands, "the new file has no room"
    told |= {"used_memory_dataset": 300_000}
    await watch.look()
    assert commands[-1] == "BGREWRITEAOF"


async def _pid(watch: DiskWatch) -> int:
    return int((await watch._redis.execute_command("INFO"))["process_id"])
