"""A queue at its `max_depth` is full on every way in, and what waits for room counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from operations.cluster import Link, Linked
from weir.admission.admission import Admission
from weir.broker.broker import Broker
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.errors import QueueFull
from weir.exchange.seam import PushAnswer, Pushed, Queued, Refused
from weir.exchange.service import OperationService
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.names import EnvironmentRef, QueueRef
from weir.operations.model import Reason
from weir.spec.ir import QueueSpec, Retention
from weir.testing.memory import MemoryBroker

from .conftest import busy, idle, item

DEPTH = 5


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest, redis_url: str) -> AsyncIterator[Broker]:
    broker = MemoryBroker() if request.param == "memory" else RedisBroker(RedisConnection(url=redis_url))
    yield broker
    await broker.aclose()


@pytest.fixture
async def tiny(store: Broker, environment: EnvironmentRef) -> QueueRef:
    queue = environment.queue("tiny")
    await store.define(queue, QueueSpec(name="tiny", retention=Retention(max_depth=DEPTH)))
    return queue


@pytest.fixture
def link(store: Broker) -> Linked:
    """What cuts the pressed process off from the broker."""
    return Linked(store)  # type: ignore[arg-type]


@pytest.fixture
async def pressed(database: Database, link: Linked) -> OperationService:
    """A process that queues every push."""
    service = OperationService(database=database, broker=link, admission=Admission(), allowance_ms=400)  # type: ignore[arg-type]
    busy(service.admission)
    return service


@pytest.fixture
async def calm(database: Database, store: Broker) -> AsyncIterator[OperationService]:
    """A process that executes every push, and keeps the leave to do so for itself and others."""
    service = OperationService(database=database, broker=store, allowance_ms=800)
    await service.keeper.run_round()
    keeping = asyncio.create_task(service.keeper.run())
    yield service
    await cancel_and_wait([keeping])


def kinds(answers: list[PushAnswer]) -> list[str]:
    return [answer.error.code if isinstance(answer, Refused) else type(answer).__name__ for answer in answers]


async def push(service: OperationService, queue: QueueRef, *texts: str, **options: str) -> list[PushAnswer]:
    return await service.front().push([item(queue, text, **options) for text in texts])


async def popped(store: Broker, queue: QueueRef, limit: int = 1) -> list[str]:
    got = await store.dequeue(queue, consumer="c", limit=limit)
    await store.ack([one.lease for one in got])
    return [one.payload.decode() for one in got]


async def drained(store: Broker, queue: QueueRef, database: Database, service: OperationService) -> list[str]:
    """Everything that is queued or waits, in the order in which it is handed out."""
    found: list[str] = []
    while await service.queue.depth() or (await store.state(queue)).depth:
        async with database.connection() as connection:
            await connection.execute("UPDATE weir.operation_lanes SET ready_ms = 0")
        await service.processor.run_round()
        found += await popped(store, queue)
    return found


async def test_full_is_full_for_a_process_that_queues_and_for_one_that_does_not(
    store: Broker, tiny: QueueRef, pressed: OperationService, calm: OperationService, database: Database
) -> None:
    assert kinds(await push(calm, tiny, *"01234")) == ["Pushed"] * DEPTH
    for _ in range(110):
        busy(pressed.admission)
        assert kinds(await push(pressed, tiny, "x")) == ["queue_full"]
    assert await pressed.queue.depth() == 0
    assert await popped(store, tiny) == ["0"]
    assert kinds(await push(pressed, tiny, "5", "x", "y")) == ["Queued", "queue_full", "queue_full"]
    for _ in range(40):
        assert kinds(await push(calm, tiny, "x")) == ["queue_full"]
        assert kinds(await push(calm, tiny, "x", key="another")) == ["queue_full"]
    assert await calm.queue.depth() == 1
    assert (await store.state(tiny)).depth == DEPTH - 1
    assert await drained(store, tiny, database, calm) == list("12345")
    assert kinds(await push(calm, tiny, "6")) == ["Pushed"]


async def test_order_is_kept_where_some_of_a_batch_find_room(
    store: Broker, tiny: QueueRef, pressed: OperationService, calm: OperationService, database: Database
) -> None:
    first = await push(pressed, tiny, "0", "1")
    second = await push(pressed, tiny, "2", "3", "4", "x")
    assert kinds(first + second) == ["Queued"] * DEPTH + ["queue_full"]
    assert kinds(await push(calm, tiny, "x")) == ["queue_full"]
    assert await drained(store, tiny, database, calm) == list("01234")
    refused = (await store.state(tiny)).odometers["refused"]
    assert refused == 2


async def test_a_cancelled_operation_gives_its_room_back(
    tiny: QueueRef, pressed: OperationService, calm: OperationService
) -> None:
    (queued, *_) = await push(pressed, tiny, *"01234")
    assert isinstance(queued, Queued)
    assert kinds(await push(calm, tiny, "x")) == ["queue_full"]
    await calm.store.open_gate(tiny.scope, await calm.store.cancel(tiny.scope, queued.operation_id))
    assert kinds(await push(calm, tiny, *"01234")) == ["Pushed"] * DEPTH


async def test_while_the_broker_is_away_pushes_wait_for_room_and_count_once_it_is_back(
    store: Broker,
    tiny: QueueRef,
    link: Linked,
    pressed: OperationService,
    calm: OperationService,
    database: Database,
) -> None:
    await push(calm, tiny, "0", "1")
    idle(pressed.admission)
    link.link = Link.CUT
    answers = [answer for n in range(2, 12) for answer in await push(pressed, tiny, f"{n:x}")]
    assert {answer.reason for answer in answers if isinstance(answer, Queued)} == {Reason.BROKER_UNAVAILABLE}
    assert len(answers) == 10
    link.link = Link.UP
    for service in (calm, pressed):
        await service.keeper.run_round()
    for service in (calm, pressed):
        busy(pressed.admission)
        assert kinds(await push(service, tiny, "x")) == ["queue_full"]
        assert kinds(await push(service, tiny, "x", key="k")) == ["queue_full"]
    assert await drained(store, tiny, database, calm) == [f"{n:x}" for n in range(12)]
    assert isinstance((await push(calm, tiny, "c"))[0], Pushed)


async def test_a_full_queue_does_not_spend_the_budget_for_queueing(
    tiny: QueueRef, environment: EnvironmentRef, store: Broker, pressed: OperationService
) -> None:
    roomy = environment.queue("roomy")
    await store.define(roomy, QueueSpec(name="roomy"))
    await push(pressed, tiny, *"01234")
    for _ in range(200):
        await push(pressed, tiny, "x")
    assert kinds(await push(pressed, roomy, "a")) == ["Queued"]


def test_full_is_a_503() -> None:
    assert (QueueFull.status, QueueFull.code) == (503, "queue_full")
