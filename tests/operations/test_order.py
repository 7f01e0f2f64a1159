"""Operations take effect in the order of their responses, direct and queued mixed."""

from __future__ import annotations

from support.waiting import until
from weir.control.database import Database
from weir.exchange.seam import Pushed, PushItem, Queued
from weir.exchange.service import OperationService
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.operations.model import Reason
from weir.spec.ir import QueueSpec
from weir.testing.memory import MemoryBroker

from .conftest import busy, drained, idle, item, running


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
    assert await service.processor.run_round() == 2
    fourth = (await service.front().push([item(queue, "4", key="a")]))[0]
    assert isinstance(fourth, Pushed)
    assert await drained(broker, queue) == ["1", "2", "3", "4"]


async def test_a_queued_message_has_the_priority_of_its_queue_or_its_own(
    service: OperationService, broker: MemoryBroker, environment: EnvironmentRef
) -> None:
    queue = environment.queue("urgent")
    await broker.define(queue, QueueSpec(name="urgent", priority=7))
    urgent = PushItem(queue=queue, message=NewMessage(payload=b"own", priority=0))
    busy(service.admission)
    await service.front().push([item(queue, "usual"), urgent])
    await service.processor.run_round()
    got = await broker.dequeue(queue, consumer="test", limit=9)
    assert [(one.payload, one.priority) for one in got] == [(b"usual", 7), (b"own", 0)]


async def test_the_time_that_an_operation_waited_is_taken_off_a_delay(
    service: OperationService, broker: MemoryBroker, queue: QueueRef, database: Database
) -> None:
    busy(service.admission)
    delayed = [
        NewMessage(payload=name.encode(), delay_ms=ms) for name, ms in (("long", 900_000), ("short", 60_000))
    ]
    await service.front().push([PushItem(queue=queue, message=message) for message in delayed])
    async with database.connection() as connection:
        await connection.execute("UPDATE weir.operations SET created_ms = created_ms - 600000")
    before_ms = await broker.now_ms(0)
    await service.processor.run_round()
    pushed_ms = await broker.now_ms(0)
    (got,) = await broker.dequeue(queue, consumer="test", limit=9)
    assert got.payload == b"short"
    await broker.ack([got.lease])
    left_ms = broker._queues[queue].next_change_ms(before_ms) - pushed_ms
    assert 240_000 < left_ms <= 300_000


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
    await service.processor.run_round()
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

        await until(empty)
    assert await drained(broker, queue) == [str(n) for n in range(50)]
