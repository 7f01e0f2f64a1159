"""Old ids that come again: of operations long finished, of claims long settled, of requests sent twice."""

from __future__ import annotations

import pytest

from weir.control.database import Database
from weir.errors import Conflict, NotFound
from weir.exchange.seam import Pushed, Queued
from weir.exchange.service import OperationService
from weir.model.names import QueueRef
from weir.operations.execute import execute
from weir.operations.maintenance import Cleaner
from weir.operations.model import OperationStatus
from weir.testing.memory import MemoryBroker

from .conftest import busy, drained, idle, item


async def queued(service: OperationService, queue: QueueRef, text: str, **how: str) -> Queued:
    busy(service.admission)
    (answer,) = await service.front().push([item(queue, text, **how)])
    idle(service.admission)
    assert isinstance(answer, Queued)
    return answer


async def test_a_claim_that_is_run_again_after_its_operation_ended_changes_nothing(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    ticket = await queued(service, queue, "once", key="a")
    claimed = await service.queue.claim(worker="late", partitions=10, run=10, total=10)
    first = await execute(broker, claimed)
    assert set(await service.queue.settle(first, worker="late")) == {ticket.operation_id}
    await service.processor._open(claimed)
    assert await drained(broker, queue) == ["once"]
    again = await execute(broker, claimed)
    assert await service.queue.settle(again, worker="late") == {}
    assert await drained(broker, queue) == []
    row = await service.store.read(queue.scope, ticket.operation_id)
    assert row["status"] == OperationStatus.COMPLETED


async def test_the_id_of_a_finished_operation_can_be_read_but_neither_cancelled_nor_retried(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    ticket = await queued(service, queue, "once")
    await service.processor.run_round()
    for verb in (service.store.cancel, service.store.retry):
        with pytest.raises(Conflict, match="completed"):
            await verb(queue.scope, ticket.operation_id)
    assert await drained(broker, queue) == ["once"]
    assert await service.queue.depth() == 0


async def test_the_id_of_a_forgotten_operation_does_not_exist_and_brings_nothing_back(
    database: Database, service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    ticket = await queued(service, queue, "once")
    await service.processor.run_round()
    await Cleaner(database=database, queue=service.queue, done_ms=-1000).clean()
    for verb in (service.store.read, service.store.cancel, service.store.retry):
        with pytest.raises(NotFound, match="kept for an hour"):
            await verb(queue.scope, ticket.operation_id)
    assert await service.processor.run_round() == 0
    assert await drained(broker, queue) == ["once"]


async def test_a_cancelled_operation_stays_cancelled_whoever_asks_again(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    ticket = await queued(service, queue, "never")
    await service.store.cancel(queue.scope, ticket.operation_id)
    for verb in (service.store.cancel, service.store.retry):
        with pytest.raises(Conflict, match="cancelled"):
            await verb(queue.scope, ticket.operation_id)
    assert await service.processor.run_round() == 0
    assert await drained(broker, queue) == []


async def test_an_idempotency_key_that_comes_again_direct_and_queued_pushes_once(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    await queued(service, queue, "1", key="a", idempotency_key="same")
    await queued(service, queue, "1", key="a", idempotency_key="same")
    while await service.processor.run_round():
        pass
    (direct,) = await service.front().push([item(queue, "1", key="a", idempotency_key="same")])
    assert isinstance(direct, Pushed)
    assert direct.duplicate
    await queued(service, queue, "1", key="a", idempotency_key="same")
    while await service.processor.run_round():
        pass
    assert await drained(broker, queue) == ["1"]
