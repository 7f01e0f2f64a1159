"""Asyncio tasks end reliably, and of the parts of a request only a few run at the same time."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from weir.model import asyncio_tasks
from weir.model.asyncio_tasks import AT_ONCE, cancel_and_wait, in_turns, run_to_end


class Parts:
    """Counts how many run at the same time."""

    def __init__(self) -> None:
        self.running = self.most = self.ended = 0
        self.go = asyncio.Event()

    async def part(self, number: int) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        finally:
            self.running -= 1
            self.ended += 1
        return number


@pytest.mark.parametrize("count", [0, 1, 2, AT_ONCE, AT_ONCE + 1, 1_000])
async def test_all_answers_come_in_order_and_few_parts_run_at_once(count: int) -> None:
    parts = Parts()
    parts.go.set()
    assert await in_turns([parts.part(number) for number in range(count)]) == list(range(count))
    assert parts.most <= AT_ONCE
    assert parts.ended == count


async def test_who_stops_waiting_begins_nothing_more() -> None:
    parts = Parts()
    waiting = asyncio.create_task(in_turns([parts.part(number) for number in range(1_000)]))
    while parts.running < AT_ONCE:  # noqa: ASYNC110
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert (parts.running, parts.ended) == (0, AT_ONCE)


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asyncio_tasks, "AGAIN_S", 0.01)

    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(cancel_and_wait([task]), 5)
    assert task.cancelled()


async def test_work_is_finished_though_its_caller_is_cancelled_and_that_is_raised_then() -> None:
    done = []

    async def work() -> None:
        await asyncio.sleep(0.02)
        done.append(True)

    task = asyncio.create_task(run_to_end(work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]


async def test_an_error_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run_to_end(work())
