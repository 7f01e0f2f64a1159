"""The operation queue by itself: claims, crashes, poison, full queues, cancel and retry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.statements import statement
from weir.admission.admission import Admission
from weir.admission.decide import AdmissionPolicy, Threshold
from weir.admission.kinds import OperationType
from weir.broker.broker import Gated
from weir.control.database import Database, execute, fetch
from weir.errors import BrokerUnavailable, Conflict, InvalidInput, NotFound, Overloaded
from weir.exchange.seam import Pushed, Queued, Settled, SettleItem
from weir.exchange.service import OperationService
from weir.model.ids import new_id, new_message_id
from weir.model.message import LeaseRef, Settlement, Verb
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.operations.estimate import Rate, RateMeter
from weir.operations.gates import Reach
from weir.operations.maintenance import Cleaner, OrphanGates
from weir.operations.model import OperationStatus, SettledOperation
from weir.operations.queue import QUERIES
from weir.spec.ir import QueueSpec, Retention
from weir.testing.memory import MemoryBroker

from .conftest import busy, drained, idle, item


async def queued(service: OperationService, queue: QueueRef, text: str, *, key: str | None = None) -> Queued:
    busy(service.admission)
    (answer,) = await service.front().push([item(queue, text, key=key)])
    idle(service.admission)
    assert isinstance(answer, Queued)
    return answer


async def test_worker_crash_recovery(
    database: Database, service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    """A worker that died with a claim is taken over after the operation's timeout, and not before."""
    await queued(service, queue, "1")
    dead = await service.queue.claim(worker="dead", partitions=10, run=10, total=10)
    assert [claimed.retry_count for claimed in dead] == [0]
    assert await service.processor.run_round() == 0
    async with database.connection() as connection:
        await execute(connection, statement("UPDATE weir.operation_lanes SET until_ms = until_ms - 30001"))
    assert await service.processor.run_round() == 1
    assert await drained(broker, queue) == ["1"]


async def step_back(database: Database) -> None:
    """PostgreSQL's clock steps back by an hour: every moment that is stored lies an hour further ahead."""
    async with database.connection() as connection:
        for change in (
            "UPDATE weir.operation_lanes SET ready_ms = ready_ms + 3600000, until_ms = until_ms + 3600000",
            "UPDATE weir.direct_leases SET granted_until_ms = granted_until_ms + 3600000",
            "UPDATE weir.operation_rates SET measured_ms = measured_ms + 3600000",
        ):
            await execute(connection, statement(change))


async def test_operations_run_although_the_clock_of_postgresql_stepped_back_since_the_last_one(
    database: Database, service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    await queued(service, queue, "1", key="k")
    await queued(service, queue, "2", key="k")
    (first,) = await service.queue.claim(worker="w", partitions=1, run=1, total=1)
    await service.queue.settle(
        [SettledOperation(id=first.id, partition=first.partition, status=OperationStatus.COMPLETED)],
        worker="w",
    )
    await step_back(database)
    assert await service.processor.run_round() == 1
    assert await drained(broker, queue) == ["2"]


async def test_a_retry_and_a_dead_claim_do_not_wait_for_a_clock_that_stepped_back(
    database: Database, service: OperationService, queue: QueueRef
) -> None:
    for key in ("retried", "claimed"):
        await queued(service, queue, key, key=key)
    claimed = await service.queue.claim(worker="dead", partitions=2, run=1, total=2)
    retried = SettledOperation(
        id=claimed[0].id, partition=claimed[0].partition, status=OperationStatus.PENDING, delay_ms=10_000
    )
    await service.queue.settle([retried], worker="dead")
    assert await service.queue.claim(worker="other", partitions=2, run=1, total=2) == []
    await step_back(database)
    again = await service.queue.claim(worker="other", partitions=2, run=1, total=2)
    assert {one.id for one in again} == {one.id for one in claimed}
    assert await service.queue.find_still_mine([claimed[1].id], worker="dead") == set()


async def test_a_push_with_an_open_gate_waits_for_one_allowance_although_the_clock_stepped_back(
    database: Database, service: OperationService
) -> None:
    for _ in range(2):
        async with database.transaction() as connection:
            held = await fetch(connection, QUERIES["hold_direct"], shard=[0], allowance_ms=400)
        assert 0 < held[0]["remaining_ms"] <= 400
        await step_back(database)


async def test_a_rate_from_before_the_clock_stepped_back_does_not_count(
    database: Database, service: OperationService
) -> None:
    await service.queue.publish_rate(process="gone", per_s=9, floor_ms=1)
    assert await service.queue.read_rate(besides="me", within_ms=60_000) == (9, 1)
    await step_back(database)
    assert await service.queue.read_rate(besides="me", within_ms=60_000) == (0, 0)
    await service.queue.forget_rates()
    assert await database.fetch(statement("SELECT process FROM weir.operation_rates")) == []


async def test_queue_full_behavior(database: Database, broker: MemoryBroker, queue: QueueRef) -> None:
    """Filled to its depth it rejects; drained it takes operations again."""
    policy = AdmissionPolicy(thresholds={OperationType.PUSH: Threshold(utilization=0.7, depth=5)})
    service = OperationService(database=database, broker=broker, admission=Admission(policy=policy))
    busy(service.admission)
    for n in range(6):
        (answer,) = await service.front().push([item(queue, str(n))])
        assert isinstance(answer, Queued)
    with pytest.raises(Overloaded) as caught:
        await service.front().push([item(queue, "late")])
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s >= 1
    assert await service.processor.run_round() == 6
    await service.sampler.sample()
    (answer,) = await service.front().push([item(queue, "again")])
    assert isinstance(answer, Queued)
    await service.processor.run_round()
    idle(service.admission)
    (answer,) = await service.front().push([item(queue, "direct")])
    assert isinstance(answer, Pushed)
    assert await drained(broker, queue) == ["0", "1", "2", "3", "4", "5", "again", "direct"]


async def test_two_processors_never_run_one_partition_at_once(
    service: OperationService, queue: QueueRef
) -> None:
    for n in range(20):
        await queued(service, queue, str(n), key=f"k{n % 4}")
    claims = await asyncio.gather(
        *(service.queue.claim(worker=f"w{n}", partitions=2, run=3, total=6) for n in range(4))
    )
    partitions = [{claimed.partition for claimed in claim} for claim in claims]
    assert sum(len(found) for found in partitions) == len(set().union(*partitions)) == 4
    assert all(len(claim) == 3 * len(found) for claim, found in zip(claims, partitions, strict=True))


async def test_a_poisoned_operation_ends_as_failed_and_unblocks_its_partition(
    database: Database, service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    poisoned = await queued(service, queue, "poison", key="a")
    await queued(service, queue, "behind", key="a")
    async with database.connection() as connection:
        spoil = "UPDATE weir.operations SET payload = 'junk' WHERE id = %(id)s"
        await execute(connection, statement(spoil), id=poisoned.operation_id)
    await drain(database, service)
    row = await service.store.read(queue.scope, poisoned.operation_id)
    assert row["status"] == OperationStatus.FAILED
    assert row["retry_count"] == row["max_retries"] + 1
    assert "cannot be read" in row["error"]
    assert await drained(broker, queue) == ["behind"]
    (answer,) = await service.front().push([item(queue, "direct", key="a")])
    assert isinstance(answer, Pushed)
    again = await service.store.retry(queue.scope, poisoned.operation_id)
    assert (again["status"], again["retry_count"]) == (OperationStatus.PENDING, 0)


async def drain(database: Database, service: OperationService) -> None:
    """Work until nothing is queued, without waiting for the pauses between tries."""
    while await service.queue.depth():
        async with database.connection() as connection:
            await execute(connection, statement("UPDATE weir.operation_lanes SET ready_ms = 0"))
        await service.processor.run_round()


async def test_an_operation_waits_for_room_and_goes_on_where_it_stopped(
    database: Database, service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    small = QueueSpec(name=queue.queue, retention=Retention(max_depth=2))
    narrow = queue.scope.queue("narrow")
    await broker.define(narrow, small)
    for shard in range(broker.shards):
        service.reach.lose(shard)
    answers = await service.front().push([item(narrow, str(n)) for n in range(5)])
    assert len({answer.operation_id for answer in answers if isinstance(answer, Queued)}) == 1
    await service.keeper.run_round()
    seen: list[str] = []
    for _ in range(3):
        async with database.connection() as connection:
            await execute(connection, statement("UPDATE weir.operation_lanes SET ready_ms = 0"))
        await service.processor.run_round()
        seen += await drained(broker, narrow)
    assert seen == ["0", "1", "2", "3", "4"]
    assert await service.queue.depth() == 0


async def test_a_pending_operation_can_be_cancelled_and_a_finished_one_cannot(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    first = await queued(service, queue, "1", key="a")
    second = await queued(service, queue, "2", key="a")
    cancelled = await service.store.cancel(queue.scope, first.operation_id)
    assert cancelled["status"] == OperationStatus.CANCELLED
    await service.store.open_gate(queue.scope, cancelled)
    assert await service.processor.run_round() == 1
    with pytest.raises(Conflict):
        await service.store.cancel(queue.scope, second.operation_id)
    with pytest.raises(Conflict):
        await service.store.retry(queue.scope, second.operation_id)
    assert await drained(broker, queue) == ["2"]
    (answer,) = await service.front().push([item(queue, "3", key="a")])
    assert isinstance(answer, Pushed)


async def test_unknown_and_foreign_operation_ids_do_not_exist(
    service: OperationService, queue: QueueRef
) -> None:
    mine = await queued(service, queue, "1")
    other = EnvironmentRef(organization="other", project="p", environment="e")
    with pytest.raises(NotFound):
        await service.store.read(queue.scope, new_id())
    for verb in (service.store.read, service.store.cancel, service.store.retry):
        with pytest.raises(NotFound):
            await verb(other, mine.operation_id)
    with pytest.raises(InvalidInput):
        await service.store.read(queue.scope, "not-an-id")


async def test_the_list_pages_and_the_stats_count(service: OperationService, queue: QueueRef) -> None:
    ids = [(await queued(service, queue, str(n), key=f"k{n}")).operation_id for n in range(5)]
    page = await service.store.page(queue.scope, limit=3)
    rest = await service.store.page(queue.scope, limit=3, before=page.next_before)
    assert [row["id"] for row in page.operations + rest.operations] == ids[::-1]
    assert rest.next_before is None
    (stat,) = await service.store.stats(queue.scope)
    assert (stat["type"], stat["priority"], stat["status"], stat["count"]) == ("PUSH", 5, "pending", 5)


async def test_acks_are_queued_only_while_the_broker_is_away(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    busy(service.admission)
    await broker.enqueue(queue, [item(queue, "1").message, item(queue, "2").message])
    first, *_ = await broker.dequeue(queue, consumer="c", limit=1)
    (now,) = await service.settlements.settle([SettleItem(lease=first.lease, verb=Verb.ACK)])
    assert now == Settled(outcome=Settlement.DONE)
    second, *_ = await broker.dequeue(queue, consumer="c", limit=1)
    for shard in range(broker.shards):
        service.reach.lose(shard)
    (later,) = await service.settlements.settle([SettleItem(lease=second.lease, verb=Verb.ACK)])
    assert isinstance(later, Queued)
    await service.processor.run_round()
    row = await service.store.read(queue.scope, later.operation_id)
    assert (row["type"], row["priority"], row["result"]) == ("ACK_SINGLE", 4, {"settlements": ["done"]})
    assert (await broker.state(queue)).running == 0


async def test_acks_overtake_pushes(service: OperationService, broker: MemoryBroker, queue: QueueRef) -> None:
    await queued(service, queue, "1")
    service.reach.lose(0)
    service.reach.lose(1)
    (answer,) = await service.settlements.settle([SettleItem(lease=_lease(queue), verb=Verb.ACK)])
    assert isinstance(answer, Queued)
    (claimed,) = await service.queue.claim(worker="w", partitions=1, run=1, total=1)
    assert claimed.type == OperationType.ACK_SINGLE


def _lease(queue: QueueRef) -> LeaseRef:
    return LeaseRef(queue=queue, message_id=new_message_id(), token=new_id())


async def test_gates_that_a_dead_process_left_closed_are_opened(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    living = await queued(service, queue, "1", key="b")
    orphans = [Gated(key="a", operation=new_id(), messages=3) for _ in range(5)]
    await broker.close_gates(queue, orphans)
    sweeper = OrphanGates(queue=service.queue, broker=broker, older_ms=0, page=2)
    opened = [await sweeper.sweep() for _ in range(4)]
    assert sum(opened) == 5
    (answer,) = await service.front().push([item(queue, "2", key="a")])
    assert isinstance(answer, Pushed)
    (behind,) = await service.front().push([item(queue, "3", key="b")])
    assert isinstance(behind, Queued)
    assert behind.operation_id != living.operation_id


async def test_orphan_gates_are_opened_while_another_shard_is_away(
    service: OperationService, broker: MemoryBroker, queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, stale = shard_of(queue.scope, shards=broker.shards), broker.stale_gates

    async def stale_or_away(shard: int, **options: Any) -> Any:
        if shard != own:
            raise BrokerUnavailable("away")
        return await stale(shard, **options)

    await broker.close_gates(queue, [Gated(key="a", operation=new_id())])
    with monkeypatch.context() as patch:
        patch.setattr(broker, "stale_gates", stale_or_away)
        with pytest.raises(BrokerUnavailable):
            await OrphanGates(queue=service.queue, broker=broker, older_ms=0).sweep()
    assert await _stale(broker) == []


@pytest.mark.parametrize("name", ["no uuid", "\x00", "{018F0000-0000-7000-8000-000000000000}"])
async def test_a_gate_whose_operation_has_an_impossible_id_is_opened_like_other_orphans(
    service: OperationService, broker: MemoryBroker, queue: QueueRef, name: str
) -> None:
    living = await queued(service, queue, "1", key="b")
    await broker.close_gates(queue, [Gated(key="a", operation=name), Gated(key="c", operation=new_id())])
    sweeper = OrphanGates(queue=service.queue, broker=broker, older_ms=0)
    assert await sweeper.sweep() == 2
    assert [gate.operation for gate in await _stale(broker)] == [living.operation_id]


async def _stale(broker: MemoryBroker) -> list[Gated]:
    pages = [await broker.stale_gates(shard, older_ms=0) for shard in range(broker.shards)]
    return [gate for page in pages for _, gate in page]


async def test_a_gate_that_was_just_closed_is_nobodys_orphan(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    await broker.close_gates(queue, [Gated(key="a", operation=new_id())])
    assert await service.orphans.sweep() == 0
    (answer,) = await service.front().push([item(queue, "1", key="a")])
    assert isinstance(answer, Queued)


async def test_a_gate_that_the_broker_lost_is_closed_again(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    ticket = await queued(service, queue, "1", key="a")
    await broker.open_gates(queue, [Gated(key="a", operation=ticket.operation_id)])
    await service.processor.run_round()
    await service.processor.run_round()
    assert await drained(broker, queue) == ["1"]


async def test_finished_operations_are_forgotten_in_time(
    database: Database, service: OperationService, queue: QueueRef
) -> None:
    await queued(service, queue, "1")
    await service.processor.run_round()
    await queued(service, queue, "2")
    cleaner = Cleaner(database=database, queue=service.queue, done_ms=-1000)
    assert await cleaner.clean() == 1
    assert await service.queue.depth() == 1


def test_an_estimate_is_what_is_ahead_at_the_measured_rate_and_at_least_the_floor() -> None:
    assert Rate(per_s=0, floor_ms=5).wait_ms(10) is None
    assert Rate(per_s=500, floor_ms=20).wait_ms(100) == 200
    assert Rate(per_s=500, floor_ms=20).wait_ms(1) == 20
    meter = RateMeter()
    for _ in range(20):
        meter.note_round(operations=100, room=100, took_s=0.2, ages_ms=[300] * 100)
    assert meter.rate.per_s == pytest.approx(500)


def test_a_round_with_room_left_only_bounds_the_rate() -> None:
    meter = RateMeter()
    meter.note_round(operations=1, room=100, took_s=0.1, ages_ms=[120])
    assert meter.rate.per_s == pytest.approx(100)
    meter.note_round(operations=1, room=100, took_s=0.1, ages_ms=[120])
    assert meter.rate.per_s == pytest.approx(100)
    for _ in range(20):
        meter.note_round(operations=1, room=5, took_s=0.1, ages_ms=[120])
    assert meter.rate.per_s == pytest.approx(50, rel=0.01)
    assert meter.rate.floor_ms == pytest.approx(120)


def test_the_floor_is_not_learned_from_a_round_that_left_some_behind() -> None:
    meter = RateMeter()
    meter.note_round(operations=5, room=5, took_s=0.1, ages_ms=[900] * 5)
    assert meter.rate.floor_ms == 0


def test_processes_drain_together() -> None:
    mine, others = Rate(per_s=100, floor_ms=20), Rate(per_s=50, floor_ms=40)
    assert mine.with_others(others) == Rate(per_s=150, floor_ms=30)
    assert mine.with_others(Rate(per_s=0, floor_ms=0)) == mine
    assert Rate(per_s=0, floor_ms=0).with_others(others) == others


def test_a_shard_is_out_of_reach_until_it_was_reached_again() -> None:
    reach = Reach(2)
    reach.lose(1)
    assert reach.lost == {1}
    reach.regain(1)
    assert reach.lost == set()
