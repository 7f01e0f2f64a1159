"""How many messages a worker fetches ahead: one of long handlers, many of short ones, up to a size."""

from __future__ import annotations

import asyncio
from typing import Any

from support.waiting import until
from weir.model.message import Delivery, LeaseRef
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import QueueSpec
from weir.testing.memory import MemoryBroker
from weir.workers.held import HeldMessage
from weir.workers.prefetch import MAX_AHEAD, MAX_AHEAD_BYTES, Prefetch

from .rig import Rig

SPEC = "app A { queue Q { map_to: command Thing.Do } }"


def held(queue: QueueRef, *, payload: bytes = b"{}") -> HeldMessage:
    delivery = Delivery(
        lease=LeaseRef(queue=queue, message_id="m", token="t"),  # type: ignore[arg-type]
        payload=payload,
        headers={},
        key=None,
        priority=4,
        attempt=1,
        enqueued_at_ms=0,
        available_at_ms=0,
        lease_until_ms=0,
        wait_ms=0,
    )
    return HeldMessage(delivery, QueueSpec(name=queue.queue), claimed_at=0.0)


def work_off(prefetch: Prefetch, queue: QueueRef, *, seconds: float, count: int = 1, **options: Any) -> None:
    """Let so many handlers of a queue run one after the other."""
    for _ in range(count):
        prefetch.add([held(queue, **options)])
        prefetch.free(prefetch.take(), seconds=seconds)


def occupy(prefetch: Prefetch, queue: QueueRef, count: int) -> None:
    prefetch.add([held(queue) for _ in range(count)])
    for _ in range(count):
        prefetch.take()


def test_a_queue_that_was_never_timed_has_one_message_ahead(environment: EnvironmentRef) -> None:
    prefetch, queue = Prefetch(4), environment.queue("q")
    assert prefetch.room(queue) == 5
    occupy(prefetch, queue, 4)
    assert prefetch.room(queue) == 1
    prefetch.add([held(queue)])
    assert prefetch.room(queue) == 0


def test_short_handlers_have_many_messages_ahead_and_long_ones_one(environment: EnvironmentRef) -> None:
    prefetch, queue = Prefetch(4), environment.queue("q")
    work_off(prefetch, queue, seconds=0.00001)
    occupy(prefetch, queue, 4)
    assert prefetch.room(queue) == MAX_AHEAD
    work_off(prefetch, queue, seconds=0.01, count=200)
    assert 15 <= prefetch.room(queue) <= 25, "four slots do 20 of them in 50 ms"
    work_off(prefetch, queue, seconds=3.0, count=200)
    assert prefetch.room(queue) == 1


def test_large_messages_are_fetched_ahead_up_to_a_size(environment: EnvironmentRef) -> None:
    prefetch, queue = Prefetch(4), environment.queue("q")
    size = MAX_AHEAD_BYTES // 10
    work_off(prefetch, queue, seconds=0.00001, payload=bytes(size))
    occupy(prefetch, queue, 4)
    assert prefetch.room(queue) == 10
    prefetch.add([held(queue, payload=bytes(size)) for _ in range(9)])
    assert prefetch.room(queue) == 1


def test_a_queue_of_long_handlers_has_its_turn_beside_one_of_short_handlers(
    environment: EnvironmentRef,
) -> None:
    prefetch, short, long = Prefetch(4), environment.queue("short"), environment.queue("long")
    work_off(prefetch, short, seconds=0.0001)
    work_off(prefetch, long, seconds=60.0)
    occupy(prefetch, short, 4)
    prefetch.add([held(short) for _ in range(100)])
    assert prefetch.room(long) == 1
    prefetch.add([held(long)])
    assert prefetch.room(long) == 0
    assert prefetch.room(short) == 0, "what waits will take longer than 50 ms"


def test_a_fixed_number_is_fetched_whatever_handlers_take(environment: EnvironmentRef) -> None:
    prefetch, queue = Prefetch(2, fixed=3), environment.queue("q")
    work_off(prefetch, queue, seconds=0.00001)
    assert prefetch.room(queue) == 5
    work_off(prefetch, queue, seconds=60.0, count=100)
    assert prefetch.room(queue) == 5


async def test_a_worker_with_long_handlers_holds_one_message_more_than_it_runs(rig) -> None:
    free = asyncio.Event()

    @rig.commands.command("Thing.Do")
    async def do() -> None:
        await free.wait()

    await rig.apply(SPEC)
    await rig.put("Q", *[b"{}"] * 50)
    async with rig.working(concurrency=3) as worker:
        await until(lambda: worker.fetched_ahead == 1)
        for _ in range(200):
            await asyncio.sleep(0)
        state = await rig.broker.state(rig.environment.queue("Q"))
        assert (state.running, state.depth, worker.free_slots) == (4, 46, 0)
        free.set()
        await until(lambda: worker.processed == 50)


async def test_a_worker_with_short_handlers_claims_many_at_a_time(rig) -> None:
    limits: list[int] = []
    dequeue = rig.broker.dequeue

    async def noted(*arguments: Any, limit: int, **options: Any) -> list[Delivery]:
        limits.append(limit)
        return await dequeue(*arguments, limit=limit, **options)

    @rig.commands.command("Thing.Do")
    async def do() -> None: ...

    rig.broker.dequeue = noted
    await rig.apply(SPEC)
    await rig.put("Q", *[b"{}"] * 1_000)
    await rig.put("Q", *[b"{}"] * 1_000)
    async with rig.working(concurrency=2) as worker:
        await until(lambda: worker.processed == 2_000)
    assert limits[0] == 3, "nothing is known of its handlers yet"
    assert MAX_AHEAD // 2 <= max(limits) <= MAX_AHEAD + 2


class AskedBroker(MemoryBroker):
    """Notes when it is asked for messages."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self._notes = notes

    async def dequeue(self, *args: Any, **options: Any) -> list[Delivery]:
        self._notes.append("asked")
        return await super().dequeue(*args, **options)


async def test_a_handler_begins_before_the_queue_is_asked_again(environment: EnvironmentRef) -> None:
    """At a slow pace a message is alone, and its handler should not wait until the next claim is sent."""
    notes: list[str] = []
    rig = Rig(environment, broker=AskedBroker(notes))

    @rig.commands.command("Thing.Do")
    async def do() -> None:
        notes.append("handled")

    await rig.apply(SPEC)
    await rig.put("Q", b"{}")
    async with rig.working():
        await until(lambda: rig.endings() == ["done"])
    assert notes[:3] == ["asked", "handled", "asked"]
