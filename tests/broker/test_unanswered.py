"""A pop whose answer reaches nobody costs its messages nothing: they are given back, and were not tried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.indexes import check_indexes
from support.waiting import until
from weir.broker.blocking import BlockingBroker
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.errors import BrokerUnavailable
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec


@pytest.fixture(params=list(Ordering))
async def queue(redis_url: str, environment: EnvironmentRef, request: pytest.FixtureRequest) -> QueueRef:
    queue = environment.queue("work")
    broker = RedisBroker(RedisConnection(url=redis_url))
    await broker.define(environment.queue("none"), QueueSpec(name="none"))
    policy = DeliveryPolicy(max_attempts=1, lease_ms=600_000)
    await broker.define(queue, QueueSpec(name="work", delivery=policy, ordering=request.param))
    for key in "ab":
        await broker.enqueue(queue, [NewMessage(payload=b"%d" % n, key=key) for n in range(3)])
    await broker.aclose()
    return queue


@pytest.fixture
async def broker(redis_url: str) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(RedisConnection(url=redis_url, timeout_s=1))
    yield broker
    await broker.aclose()


class LostAnswers:
    """Lets the answers of dequeues be lost after they ran, or before they run."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.lost = 0
        self.runs = True
        self.ran = asyncio.Event()

    async def execute_command(self, *args: Any) -> Any:
        if not self.lost:
            return await self._inner.execute_command(*args)
        if self.runs:
            await self._inner.execute_command(*args)
        self.lost -= 1
        self.ran.set()
        return await asyncio.Event().wait()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def lose(broker: RedisBroker, *, answers: int, runs: bool = True) -> LostAnswers:
    lossy = LostAnswers(broker._runner.client)
    lossy.lost, lossy.runs = answers, runs
    broker._runner.client = lossy  # type: ignore[assignment]
    return lossy


async def is_whole(broker: RedisBroker, queue: QueueRef) -> bool:
    return (await broker.state(queue)).running == 0


async def take_all(broker: RedisBroker, queue: QueueRef) -> list[int]:
    """The numbers of the attempts of all messages."""
    attempts: list[int] = []
    while got := await broker.dequeue(queue, consumer="c", limit=10):
        attempts += [one.attempt for one in got]
        await broker.ack([one.lease for one in got])
    return attempts


@pytest.mark.parametrize("end", ["cancelled", "unavailable"])
async def test_messages_of_a_pop_without_an_answer_are_given_back_untried(
    broker: RedisBroker, queue: QueueRef, end: str
) -> None:
    await broker.state(queue)
    lossy = lose(broker, answers=1)
    pop = asyncio.create_task(broker.dequeue(queue, consumer="c", limit=2))
    await asyncio.wait_for(lossy.ran.wait(), 10)
    assert not await is_whole(broker, queue)
    if end == "cancelled":
        pop.cancel()
    with pytest.raises(asyncio.CancelledError if end == "cancelled" else BrokerUnavailable):
        await pop
    await until(lambda: is_whole(broker, queue))
    await check_indexes(broker._runner.client.execute_command, queue, shards=4)
    assert await take_all(broker, queue) == [1] * 6


async def test_a_pop_that_was_given_up_before_it_ran_hands_nothing_out_later(
    broker: RedisBroker, queue: QueueRef
) -> None:
    await broker.state(queue)
    lossy = lose(broker, answers=1, runs=False)
    calls: list[tuple[Any, ...]] = []
    execute = lossy.execute_command

    async def noted(*args: Any) -> Any:
        calls.append(args)
        return await execute(*args)

    lossy.execute_command = noted  # type: ignore[method-assign]
    pop = asyncio.create_task(broker.dequeue(queue, consumer="c", limit=2))
    await asyncio.wait_for(lossy.ran.wait(), 10)
    pop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pop
    await until(lambda: bool(broker._runner._slots))
    late = await execute(*calls[0])
    assert late == [b"stale"]
    assert await is_whole(broker, queue)


async def test_closing_gives_back_first(redis_url: str, broker: RedisBroker, queue: QueueRef) -> None:
    leaving = RedisBroker(RedisConnection(url=redis_url))
    await leaving.state(queue)
    lossy = lose(leaving, answers=1)
    pop = asyncio.create_task(leaving.dequeue(queue, consumer="c"))
    await asyncio.wait_for(lossy.ran.wait(), 10)
    pop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pop
    await leaving.aclose()
    assert await is_whole(broker, queue)


async def test_a_client_that_blocks_gives_back_before_its_next_call(redis_url: str, queue: QueueRef) -> None:
    broker = BlockingBroker(RedisConnection(url=redis_url))
    await broker.state(queue)
    assert await broker.dequeue(queue.scope.queue("none"), consumer="c") == []
    execute, left = broker._runner.client.execute_command, [3]

    async def lossy(*args: Any) -> Any:
        reply = await execute(*args)
        if left[0]:
            left[0] -= 1
            raise ConnectionError("the answer is lost")
        return reply

    broker._runner.client.execute_command = lossy  # type: ignore[method-assign]
    with pytest.raises(BrokerUnavailable):
        await broker.dequeue(queue, consumer="c", limit=2)
    assert not await is_whole(broker, queue)
    assert await take_all(broker, queue) == [1] * 6
    await broker.aclose()
