"""What a queued settlement promises about its lease, and what it says if it came too late."""

from __future__ import annotations

import asyncio

import pytest

from support.waiting import until
from weir.broker.layout import KEPT_MS
from weir.control.database import Database
from weir.control.sql import NamedQuery
from weir.exchange.seam import Queued, SettleItem
from weir.exchange.service import OperationService
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.message import Delivery, Failure, NewMessage, Verb
from weir.model.names import QueueRef
from weir.testing.memory import MemoryBroker

ENDED = NamedQuery(
    name="ended",
    sentence="How an operation ended.",
    text="SELECT status, error, result FROM weir.operations WHERE id = %(id)s::uuid",
)


@pytest.fixture
async def leased(broker: MemoryBroker, queue: QueueRef) -> list[Delivery]:
    await broker.enqueue(queue, [NewMessage(payload=b"a", key="a"), NewMessage(payload=b"b", key="b")])
    return await broker.dequeue(queue, consumer="c", limit=2)


async def queue_acks(service: OperationService, leased: list[Delivery]) -> Queued:
    """Ack while the broker is out of reach."""
    shard = service.reach.shard(leased[0].queue)
    service.reach.lose(shard)
    answers = await service.settlements.settle([SettleItem(lease=one.lease, verb=Verb.ACK) for one in leased])
    service.reach.regain(shard)
    assert isinstance(answers[0], Queued)
    return answers[0]


async def ended(database: Database, service: OperationService, answer: Queued) -> tuple[str, str, object]:
    await service.processor.run_round()
    row = await database.fetch_one(ENDED, id=answer.operation_id)
    assert row is not None
    return row["status"], row["error"] or "", row["result"]


async def test_a_settlement_that_came_too_late_has_failed_and_names_its_messages(
    database: Database, service: OperationService, broker: MemoryBroker, leased: list[Delivery]
) -> None:
    await broker.nack([Failure(lease=leased[1].lease)])
    status, error, result = await ended(database, service, await queue_acks(service, leased))
    assert (status, result) == ("failed", {"settlements": ["done", "lapsed"]})
    assert error == (
        "lease_lost: 1 of 2 leases lapsed or were settled before; nothing changed for "
        f"`{leased[1].message_id}`"
    )


async def test_a_queued_settlement_says_for_how_long_its_lease_is_kept(
    database: Database, service: OperationService, leased: list[Delivery]
) -> None:
    first = await queue_acks(service, leased[:1])
    assert first.lease_kept_ms == 0
    assert (await ended(database, service, first))[0] == "completed"
    await service.keeper.renew()
    answer = await queue_acks(service, leased[1:])
    assert answer.lease_kept_ms is not None
    assert 0 < answer.lease_kept_ms <= KEPT_MS
    assert (await ended(database, service, answer))[0] == "completed"


async def test_a_keeper_that_stops_well_lets_leases_lapse_when_they_end(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    keeping = asyncio.create_task(service.keeper.run())
    await until(lambda: service.keeper._settled)
    await cancel_and_wait([keeping])
    await broker.enqueue(queue, [NewMessage(payload=b"a", key="a")])
    (first,) = await broker.dequeue(queue, consumer="killed", limit=1, lease_ms=300)

    async def came_back() -> bool:
        return [one.message_id for one in await broker.dequeue(queue, consumer="next")] == [first.message_id]

    # Long before the minute after which scripts go on without a keeper that was killed.
    await until(came_back, within_s=20)
