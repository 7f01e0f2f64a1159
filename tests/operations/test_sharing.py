"""Requests that share calls: one that must be queued never holds up those that need not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from weir.admission.admission import Admission
from weir.admission.capacity import AdaptiveLimit, QueueBudget
from weir.broker.broker import Gated
from weir.control.database import Database
from weir.errors import NotFound, Overloaded
from weir.exchange.attempt import CoalescingPusher
from weir.exchange.seam import Pushed, Queued, Refused
from weir.exchange.service import OperationService
from weir.model.holders import STRANGERS
from weir.model.ids import new_operation_id
from weir.model.names import QueueRef
from weir.operations.model import NewOperation
from weir.operations.queue import Added
from weir.testing.memory import MemoryBroker

from .conftest import busy, idle, item


class Counting:
    """Counts the calls that close gates; everything else is passed on."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self.closings: list[int] = []

    async def close_gates(
        self, queue: QueueRef, gates: Sequence[Gated], *, within_room: bool = False
    ) -> list[int]:
        self.closings.append(len(gates))
        return await self._broker.close_gates(queue, gates, within_room=within_room)

    def __getattr__(self, name: str) -> object:
        return getattr(self._broker, name)


async def test_a_push_that_waits_for_postgresql_does_not_hold_up_the_calls_that_others_share(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    await broker.close_gates(queue, [Gated(key="queued", operation=new_operation_id())])
    written = asyncio.Event()
    add = service.queue.add

    async def slow(operations: Sequence[NewOperation]) -> Added:
        await written.wait()
        return await add(operations)

    service.queue.add = slow  # type: ignore[method-assign]
    front = service.front(CoalescingPusher(service.attempt, at_once=1))
    behind = asyncio.create_task(front.push([item(queue, "1", key="queued")]))
    async with asyncio.timeout(5):
        for n in range(10):
            (answer,) = await front.push([item(queue, str(n), key="free")])
            assert isinstance(answer, Pushed)
    assert not behind.done()
    written.set()
    assert isinstance((await behind)[0], Queued)


async def test_operations_that_arrive_together_close_their_gates_in_one_call(
    database: Database, broker: MemoryBroker, queue: QueueRef
) -> None:
    counting = Counting(broker)
    service = OperationService(database=database, broker=counting)  # type: ignore[arg-type]
    busy(service.admission)
    pushes = [service.front().push([item(queue, str(n), key=f"k{n}")]) for n in range(12)]
    answers = await asyncio.gather(*pushes)
    assert all(isinstance(answer, Queued) for (answer,) in answers)
    assert sum(counting.closings) == 12
    assert len(counting.closings) <= 3


async def test_whoever_queues_again_the_moment_it_was_answered_is_written_too(
    service: OperationService, queue: QueueRef
) -> None:
    busy(service.admission)
    service.admission.queueing_limit = AdaptiveLimit(initial=100)

    async def producer(name: int) -> None:
        for n in range(5):
            (answer,) = await service.front().push([item(queue, str(n), key=f"{name}-{n}")])
            assert isinstance(answer, Queued)

    async with asyncio.timeout(10):
        await asyncio.gather(*(producer(name) for name in range(8)))
    assert await service.queue.depth() == 40


async def test_a_large_push_counts_for_several_on_their_way_into_the_queue() -> None:
    admission = Admission()
    with admission.entering(200, STRANGERS), admission.entering(1, STRANGERS):
        assert admission.queueing == 5
    assert admission.queueing == 0


async def test_an_undefined_queue_fails_its_own_push_and_no_other(
    service: OperationService, queue: QueueRef
) -> None:
    busy(service.admission)
    (missing,), (there,) = await asyncio.gather(
        service.front().push([item(queue.scope.queue("missing"), "1")]),
        service.front().push([item(queue, "1")]),
    )
    assert isinstance(missing, Refused)
    assert isinstance(missing.error, NotFound)
    assert isinstance(there, Queued)


async def test_an_undefined_queue_is_refused_while_the_broker_is_away_too(
    database: Database, broker: MemoryBroker, queue: QueueRef
) -> None:
    async def known(asked: QueueRef) -> bool:
        return asked == queue

    service = OperationService(database=database, broker=broker, allowance_ms=40, known=known)
    for shard in range(broker.shards):
        service.reach.lose(shard)
    answers = await service.front().push([item(queue.scope.queue("missing"), "1"), item(queue, "2")])
    assert isinstance(answers[0], Refused)
    assert isinstance(answers[0].error, NotFound)
    assert "define it first" in str(answers[0].error)
    assert isinstance(answers[1], Queued)
    assert await service.queue.depth() == 1


async def test_once_the_budget_is_spent_a_push_to_a_gated_partition_is_turned_away_and_the_gate_opens(
    database: Database, broker: MemoryBroker, queue: QueueRef
) -> None:
    admission = Admission(budget=QueueBudget(burst=2, share=0.0, refill_s=1))
    service = OperationService(database=database, broker=broker, admission=admission)
    busy(service.admission)
    await service.front().push([item(queue, "1", key="a")])
    idle(service.admission)
    (second,) = await service.front().push([item(queue, "2", key="a")])
    assert isinstance(second, Queued)
    (third,) = await service.front().push([item(queue, "3", key="a")])
    assert isinstance(third, Refused)
    assert isinstance(third.error, Overloaded)
    busy(service.admission)
    with pytest.raises(Overloaded):
        await service.front().push([item(queue, "4", key="b")])
    idle(service.admission)
    await service.processor.run_round()
    (direct,) = await service.front().push([item(queue, "5", key="a")])
    assert isinstance(direct, Pushed)


async def test_what_is_queued_because_the_broker_is_away_costs_no_budget(
    database: Database, broker: MemoryBroker, queue: QueueRef
) -> None:
    admission = Admission(budget=QueueBudget(burst=1, share=0.0, refill_s=1))
    service = OperationService(database=database, broker=broker, admission=admission, allowance_ms=40)
    for shard in range(broker.shards):
        service.reach.lose(shard)
    for n in range(5):
        (answer,) = await service.front().push([item(queue, str(n))])
        assert isinstance(answer, Queued)
    assert admission.budget.open
