"""Operations take effect in the order of their responses, direct and queued mixed."""

from __future__ import annotations

from weir.model.exchange import Pushed, Queued
from weir.model.names import QueueRef
from weir.operations.model import Reason
from weir.operations.service import OperationService
from weir.testing.memory import MemoryBroker

from .conftest import busy, drained, idle, item, running, wait_for


async def test_ordering_under_load(service: OperationService, broker: MemoryBroker, queue: QueueRef) -> None:
    """Direct, queued for load, queued to keep the order, and direct again once drained."""
    first = (await service.front().push([item(queue, "1", key="a")]))[0]
    busy(service.admission)
    second = (await service.front().push([item(queue, "2", key="a")]))[0]
    idle(service.admission)
    third = (await service.front().push([item(queue, "3", key="a")]))[0]
    assert isinstance(first, Pushed)
    assert isinstance(second, Queued)
    assert second.reason == Reason.SYSTEM_BUSY
    assert isinstance(third, Queued)
    assert third.reason == Reason.MAINTAINING_ORDER
    assert await service.processor.round() == 2
    fourth = (await service.front().push([item(queue, "4", key="a")]))[0]
    assert isinstance(fourth, Pushed)
    assert await drained(broker, queue) == ["1", "2", "3", "4"]


async def test_another_partition_goes_direct_meanwhile(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    busy(service.admission)
    await service.front().push([item(queue, "1", key="a")])
    idle(service.admission)
    answers = await service.front().push(
        [item(queue, "2", key="a"), item(queue, "3", key="b"), item(queue, "4", key=None)]
    )
    assert [type(answer) for answer in answers] == [Queued, Pushed, Pushed]
    await service.processor.round()
    assert sorted(await drained(broker, queue)) == ["1", "2", "3", "4"]


async def test_a_running_processor_drains_by_itself(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    async with running(service):
        busy(service.admission)
        for n in range(50):
            service.admission.in_flight = 10_000
            await service.front().push([item(queue, str(n), key="a")])

        async def empty() -> bool:
            return await service.queue.depth() == 0

        await wait_for(empty)
    assert await drained(broker, queue) == [str(n) for n in range(50)]
