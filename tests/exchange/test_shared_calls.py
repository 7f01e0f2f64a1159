"""Requests share broker calls under load; each gets its own answers, and nobody another's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from weir.errors import InvalidInput
from weir.exchange.attempt import SHARED, CoalescingPusher, DirectPusher, RequestCoalescer
from weir.exchange.seam import Pushed, PushItem, Refused
from weir.model.holders import HOLDER
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.spec.ir import QueueSpec
from weir.testing.memory import MemoryBroker


async def test_what_waits_goes_out_together_in_order() -> None:
    calls: list[list[int]] = []
    go = asyncio.Event()

    async def execute(items: Sequence[int]) -> list[int]:
        calls.append(list(items))
        await go.wait()
        return [item * 10 for item in items]

    coalescer: RequestCoalescer[int, int] = RequestCoalescer(execute, at_once=1)
    waiting = [asyncio.create_task(coalescer.submit([n, n + 100])) for n in range(5)]
    await asyncio.sleep(0)
    go.set()
    assert await asyncio.gather(*waiting) == [[n * 10, (n + 100) * 10] for n in range(5)]
    assert calls == [[0, 100], [1, 101, 2, 102, 3, 103, 4, 104]]


async def test_a_shared_call_never_exceeds_its_limit_and_is_filled_up_to_it() -> None:
    sizes: list[int] = []

    async def execute(items: Sequence[int]) -> list[int]:
        sizes.append(len(items))
        await asyncio.sleep(0)
        return list(items)

    coalescer: RequestCoalescer[int, int] = RequestCoalescer(execute, at_once=1)
    third = SHARED // 3
    await asyncio.gather(*(coalescer.submit([1] * third) for _ in range(7)))
    assert sizes == [third, 3 * third, 3 * third]


async def test_a_request_that_is_larger_than_a_shared_call_goes_alone_and_whole() -> None:
    sizes: list[int] = []

    async def execute(items: Sequence[int]) -> list[int]:
        sizes.append(len(items))
        await asyncio.sleep(0)
        return list(items)

    coalescer: RequestCoalescer[int, int] = RequestCoalescer(execute, at_once=1)
    await asyncio.gather(*(coalescer.submit([1] * count) for count in (1, SHARED + 1, 1, 1)))
    assert sizes == [1, SHARED + 1, 2]


async def test_an_error_reaches_everyone_of_the_call_and_lets_the_next_go() -> None:
    async def execute(items: Sequence[int]) -> list[int]:
        await asyncio.sleep(0)
        if 13 in items:
            raise RuntimeError("unlucky")
        return list(items)

    coalescer: RequestCoalescer[int, int] = RequestCoalescer(execute, at_once=1)
    results = await asyncio.gather(*(coalescer.submit([n]) for n in (1, 13, 3)), return_exceptions=True)
    assert results[0] == [1]
    assert all(isinstance(result, RuntimeError) for result in results[1:])
    assert await coalescer.submit([4]) == [4]


async def test_a_caller_that_leaves_does_not_stop_the_others() -> None:
    go = asyncio.Event()

    async def execute(items: Sequence[int]) -> list[int]:
        await go.wait()
        return list(items)

    coalescer: RequestCoalescer[int, int] = RequestCoalescer(execute, at_once=1)
    first, leaving, third = (asyncio.create_task(coalescer.submit([n])) for n in range(3))
    await asyncio.sleep(0)
    leaving.cancel()
    go.set()
    assert (await first, await third) == ([0], [2])
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_one_requests_bad_input_is_not_anothers(environment: EnvironmentRef) -> None:
    broker = MemoryBroker()
    queue = environment.queue("q")
    await broker.define(queue, QueueSpec(name="q"))
    pusher = CoalescingPusher(DirectPusher(broker), at_once=1)
    keys = [None, None, "bad\nkey", "good"]
    items = [PushItem(queue=queue, message=NewMessage(payload=b"1", key=key)) for key in keys]
    answers = await asyncio.gather(*(pusher.push([item]) for item in items))
    assert [type(answer) for (answer,) in answers] == [Pushed, Pushed, Refused, Pushed]
    (refused,) = answers[2]
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, InvalidInput)
    assert (await broker.state(queue)).depth == 3


async def test_holders_take_turns_in_a_shared_call_and_keep_their_own_order() -> None:
    calls: list[list[str]] = []
    go = asyncio.Event()

    async def execute(items: Sequence[str]) -> list[str]:
        calls.append(list(items))
        await go.wait()
        return list(items)

    coalescer: RequestCoalescer[str, str] = RequestCoalescer(execute, at_once=1)

    async def submit(who: str, number: int) -> None:
        HOLDER.set((who, None, None))
        await coalescer.submit([f"{who}{number}"] * 50)

    waiting = [asyncio.create_task(submit("loud", number)) for number in range(20)]
    waiting += [asyncio.create_task(submit("quiet", number)) for number in range(2)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*waiting)
    assert calls[0][0] == "loud0"
    assert calls[1][::50] == ["loud1", "quiet0", "loud2", "quiet1", "loud3"]
    assert [name for call in calls for name in call[::50] if name.startswith("loud")] == [
        f"loud{number}" for number in range(20)
    ]


async def test_a_large_request_keeps_no_small_one_waiting() -> None:
    begun: list[int] = []
    go = asyncio.Event()

    async def execute(items: Sequence[int]) -> list[int]:
        begun.append(len(items))
        if len(items) >= SHARED:
            await go.wait()
        return list(items)

    coalescer: RequestCoalescer[int, int] = RequestCoalescer(execute, at_once=1)
    large = [asyncio.create_task(coalescer.submit([0] * SHARED)) for _ in range(3)]
    await asyncio.sleep(0)
    assert await coalescer.submit([1]) == [1]
    go.set()
    await asyncio.gather(*large)
    assert begun == [SHARED] * 3 + [1]
