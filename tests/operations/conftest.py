"""A process of Weir in miniature: intake, processor and keeper on one broker and one PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from weir.admission.admission import Admission
from weir.control.database import Database
from weir.exchange.seam import PushItem
from weir.exchange.service import OperationService
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import Ordering, QueueSpec
from weir.testing.memory import MemoryBroker


@asynccontextmanager
async def running(service: OperationService) -> AsyncIterator[OperationService]:
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        await cancel_and_wait([task])


def busy(admission: Admission) -> None:
    """Make admission queue every push."""
    admission.in_flight = 10_000


def idle(admission: Admission) -> None:
    admission.in_flight = 0
    admission.lag_ms = 0


@pytest.fixture
def queue(environment: EnvironmentRef) -> QueueRef:
    return environment.queue("orders: a/b *")


@pytest.fixture
async def broker(queue: QueueRef) -> MemoryBroker:
    broker = MemoryBroker(shards=2)
    await broker.define(queue, QueueSpec(name=queue.queue, ordering=Ordering.PER_KEY))
    return broker


@pytest.fixture
async def service(database: Database, broker: MemoryBroker) -> OperationService:
    return OperationService(database=database, broker=broker, allowance_ms=400)


def item(
    queue: QueueRef, text: str, *, key: str | None = None, idempotency_key: str | None = None
) -> PushItem:
    message = NewMessage(payload=text.encode(), key=key, idempotency_key=idempotency_key)
    return PushItem(queue=queue, message=message)


async def drained(broker: MemoryBroker, queue: QueueRef) -> list[str]:
    """Everything in the queue, in the order in which it is handed out."""
    texts: list[str] = []
    while deliveries := await broker.dequeue(queue, consumer="test", limit=100):
        texts += [delivery.payload.decode() for delivery in deliveries]
        await broker.ack([delivery.lease for delivery in deliveries])
    return texts
