"""How often a processor looks at an empty queue, and that nothing waits for it longer than it must."""

from __future__ import annotations

import asyncio
import time

import pytest

from support.waiting import until
from weir.exchange.service import OperationService
from weir.model.asyncio_tasks import cancel_and_wait
from weir.operations import processor
from weir.operations.model import Claimed
from weir.operations.processor import Processor


class Looks:
    """When a processor looked at its queue; `during` happens within the first look."""

    def __init__(self, service: OperationService) -> None:
        self.at: list[float] = []
        self.processor: Processor = service.processor
        self._claim = service.queue.claim
        self.during = lambda: None
        service.queue.claim = self.claim  # type: ignore[method-assign]

    async def claim(self, *, worker: str, partitions: int, run: int, total: int) -> list[Claimed]:
        self.at.append(time.monotonic())
        found = await self._claim(worker=worker, partitions=partitions, run=run, total=total)
        if len(self.at) == 1:
            self.during()
        return found

    async def until(self, count: int) -> None:
        async def enough() -> bool:
            return len(self.at) >= count

        task = asyncio.create_task(self.processor.run())
        try:
            await until(enough)
        finally:
            await cancel_and_wait([task])


async def test_an_empty_queue_is_looked_at_less_and_less_often(service: OperationService) -> None:
    looks = Looks(service)
    await looks.until(5)
    assert looks.at[-1] - looks.at[0] >= 0.99 * (0.1 + 0.2 + 0.4 + 0.5)


async def test_what_is_queued_during_a_look_is_found_by_another_at_once(
    service: OperationService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "FIRST_REST_S", 600.0)
    looks = Looks(service)
    looks.during = looks.processor.wake
    await looks.until(2)
