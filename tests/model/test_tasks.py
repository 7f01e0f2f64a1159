"""The parts of a request run at once, but never all of a thousand."""

from __future__ import annotations

import asyncio

import pytest

from weir.model.asyncio_tasks import AT_ONCE, in_turns


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
