"""Lanes of calls are forgotten once nobody can ask about them, and never before."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from operations.cluster import Link, Linked
from weir.broker.broker import Broker
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.migrate import read_migrations
from weir.exchange.seam import Queued
from weir.exchange.service import OperationService
from weir.model.names import EnvironmentRef, QueueRef
from weir.operations.maintenance import IDLE_MS, IdleCalls
from weir.spec.ir import QueueSpec
from weir.testing.clocks import ManualClock
from weir.testing.memory import MemoryBroker

from .conftest import item


@pytest.fixture(params=["memory", "redis"])
async def store(
    request: pytest.FixtureRequest, redis_url: str, manual_clock: ManualClock, environment: EnvironmentRef
) -> AsyncIterator[Broker]:
    if request.param == "memory":
        broker: Broker = MemoryBroker(clock=manual_clock)
    else:
        broker = RedisBroker(RedisConnection(url=redis_url), clock=manual_clock)
    await broker.define(environment.queue("work"), QueueSpec(name="work"))
    yield broker
    await broker.aclose()


@pytest.fixture
def work(environment: EnvironmentRef) -> QueueRef:
    return environment.queue("work")


async def lanes_of(store: Broker, process: str) -> list[str]:
    found = [await store.idle_calls(shard, idle_ms=0) for shard in range(store.shards)]
    return [slot for slots in found for slot in slots if slot.startswith(process)]


async def test_a_process_that_ended_leaves_no_lane_behind(
    store: Broker, database: Database, work: QueueRef, manual_clock: ManualClock
) -> None:
    processes = [OperationService(database=database, broker=store) for _ in range(20)]
    names = [service.processor.worker for service in processes]
    for service in processes:
        await service.keeper.run_round()
        await service.front().push([item(work, "a")])
    assert [len(await lanes_of(store, name)) for name in names] == [1] * 20
    cleaner = OperationService(database=database, broker=store).idle_calls
    manual_clock.advance(IDLE_MS - 1)
    await cleaner.forget()
    assert [len(await lanes_of(store, name)) for name in names] == [1] * 20
    manual_clock.advance(1)
    await cleaner.forget()
    assert [await lanes_of(store, name) for name in names] == [[]] * 20


async def test_a_call_of_unknown_outcome_is_kept_until_its_operation_asked(
    store: Broker, database: Database, work: QueueRef, manual_clock: ManualClock
) -> None:
    link = Linked(store)  # type: ignore[arg-type]
    service = OperationService(database=database, broker=link, allowance_ms=50)  # type: ignore[arg-type]
    process = service.processor.worker
    await service.keeper.run_round()
    link.link = Link.DEAF
    (answer,) = await service.front().push([item(work, "once")])
    assert isinstance(answer, Queued)
    link.link = Link.UP
    manual_clock.advance(100 * IDLE_MS)
    cleaner = IdleCalls(queue=service.queue, broker=store)
    await cleaner.forget()
    assert len(await lanes_of(store, process)) == 1
    await service.keeper.run_round()
    await service.processor.run_round()
    row = await service.store.read(work.scope, answer.operation_id)
    assert row["result"] == {"messages": [{"id": answer.message_id, "status": "accepted"}]}
    assert (await store.state(work)).depth == 1
    manual_clock.advance(IDLE_MS)
    await cleaner.forget()
    assert await lanes_of(store, process) == []


async def test_operations_of_before_name_the_calls_that_they_will_ask_about(
    database: Database, service: OperationService, queue: QueueRef
) -> None:
    def packed(head: dict[str, object]) -> bytes:
        text = json.dumps(head, separators=(",", ":")).encode()
        return len(text).to_bytes(4, "big") + text + b"payload"

    heads = {"asks": packed({"messages": [], "call": ["old/1", "id", 0]}), "plain": packed({"messages": []})}
    broken = b"\x00\x00\x00\x0a" + b'{"call":}\xff'
    migrations = {one.name: one for one in read_migrations("weir.control.migrations")}
    async with database.connection() as connection:
        await connection.execute("DROP INDEX weir.operations_call")
        await connection.execute("ALTER TABLE weir.operations DROP COLUMN call_lane")
        for name, payload in (*heads.items(), ("broken", broken), ("short", b"")):
            await connection.execute(
                "INSERT INTO weir.operations (id, organization, project, environment, queue, shard, lane, "
                "type, priority, payload, messages, size_bytes, gated) VALUES "
                "(gen_random_uuid(), 'o', 'p', 'e', %s, 0, 1, 'PUSH', 5, %s, 1, 1, true)",
                (name, payload),
            )
        await connection.execute(migrations["operation_calls"].text.encode())
    assert await service.queue.find_asked_about(["old/1", "old/2"]) == {"old/1"}
