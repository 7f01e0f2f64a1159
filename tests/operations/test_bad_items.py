"""One bad operation holds up nobody, and its owner sees what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

from weir.broker.broker import Broker, Entry, GateRule
from weir.control.database import Database, execute
from weir.control.sql import NamedQuery
from weir.errors import BrokerUnavailable, InvalidInput, WeirError
from weir.exchange.seam import Pushed, Queued, Refused
from weir.exchange.service import OperationService
from weir.model.message import Enqueued, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.operations import processor
from weir.operations import queue as operation_queue
from weir.operations.execute import execute as execute_claimed
from weir.operations.model import MAX_TRIES, Claimed, NewOperation, SettledOperation
from weir.operations.queue import Added
from weir.operations.writer import COMMITS
from weir.spec.ir import QueueSpec
from weir.testing.memory import MemoryBroker

from .conftest import busy, item

SHARDS = 2
_OVERDUE = NamedQuery(
    name="overdue",
    sentence="Let every claim and every pause end.",
    text="UPDATE weir.operation_lanes SET until_ms = 0, ready_ms = 0",
)
_SPOIL = NamedQuery(
    name="spoil", sentence="Spoil a payload.", text="UPDATE weir.operations SET payload = %(payload)s"
)


class Spiteful(MemoryBroker):
    """Raises for some queues."""

    def __init__(self) -> None:
        super().__init__(shards=SHARDS)
        self.closing: dict[QueueRef, BaseException] = {}
        self.opening: dict[QueueRef, BaseException] = {}
        self.entering: dict[QueueRef, BaseException] = {}

    async def close_gates(self, queue: QueueRef, *args: Any, **named: Any) -> list[int | None]:
        if queue in self.closing:
            raise self.closing[queue]
        return await super().close_gates(queue, *args, **named)

    async def open_gates(self, queue: QueueRef, *args: Any) -> None:
        if queue in self.opening:
            raise self.opening[queue]
        await super().open_gates(queue, *args)

    async def enqueue(
        self, queue: QueueRef, messages: Sequence[NewMessage], *, entry: Entry = GateRule.OBEY
    ) -> list[Enqueued]:
        if queue in self.entering:
            raise self.entering[queue]
        return await super().enqueue(queue, messages, entry=entry)


@pytest.fixture
def broker() -> Spiteful:
    return Spiteful()


async def defined(broker: MemoryBroker, *, shard: int = 0) -> QueueRef:
    """A queue of a tenant of its own."""
    while True:
        scope = EnvironmentRef(organization=f"o {uuid4().hex}", project="p", environment="e")
        if shard_of(scope, shards=SHARDS) == shard:
            queue = scope.queue("q")
            await broker.define(queue, QueueSpec(name="q"))
            return queue


async def queued_while_away(service: OperationService, queue: QueueRef, text: str = "x") -> Queued:
    service.reach.lose(service.reach.shard(queue))
    (answer,) = await service.front().push([item(queue, text)])
    assert isinstance(answer, Queued)
    return answer


async def rounds(service: OperationService, database: Database, count: int) -> None:
    """Let the processor run, and let all pauses end in between."""
    for _ in range(count):
        await service.processor.run_round()
        async with database.connection() as connection:
            await execute(connection, _OVERDUE)


async def show(service: OperationService, queue: QueueRef, queued: Queued) -> tuple[str, str]:
    row = await service.store.read(queue.scope, queued.operation_id)
    return row["status"], row["error"] or ""


async def test_an_operation_of_a_deleted_queue_fails_and_holds_up_nobody(
    service: OperationService, broker: Spiteful, database: Database
) -> None:
    gone, other = await defined(broker), await defined(broker)
    await service.keeper.run_round()
    queued = await queued_while_away(service, gone)
    await broker.forget(gone)
    await service.keeper.run_round()
    (answer,) = await service.front().push([item(other, "at once")])
    assert isinstance(answer, Pushed)
    await rounds(service, database, 4)
    status, error = await show(service, gone, queued)
    assert status == "failed"
    assert "there is no queue `q`" in error


@pytest.mark.parametrize("error", [ValueError("nobody thought of it"), RecursionError(), WeirError("odd")])
async def test_the_keeper_survives_what_the_gates_of_one_queue_raise(
    service: OperationService, broker: Spiteful, error: Exception
) -> None:
    bad, good = await defined(broker), await defined(broker)
    await service.keeper.run_round()
    for queue in (bad, good):
        await queued_while_away(service, queue)
    broker.closing[bad] = error
    await service.keeper.run_round()
    other = await defined(broker)
    first, second = await service.front().push([item(other, "at once"), item(good, "behind")])
    assert isinstance(first, Pushed)
    assert isinstance(second, Queued)


async def test_gates_that_are_refused_for_now_are_closed_later(
    service: OperationService, broker: Spiteful
) -> None:
    """A Redis without memory, or without its data, takes the gates later; until then nothing may overtake."""
    queue = await defined(broker)
    await service.keeper.run_round()
    await queued_while_away(service, queue)
    broker.closing[queue] = BrokerUnavailable("out of memory", refused=True)
    await service.keeper.run_round()
    (answer,) = await service.front().push([item(queue, "behind")])
    assert isinstance(answer, Refused | Queued)
    del broker.closing[queue]
    await service.keeper.run_round()
    assert len(await broker.stale_gates(0, older_ms=-1_000)) >= 1
    (after,) = await service.front().push([item(queue, "behind")])
    assert isinstance(after, Queued)


@pytest.mark.parametrize("error", [BrokerUnavailable("no answer"), BrokerUnavailable("no", refused=True)])
async def test_a_shard_that_is_away_holds_up_no_other_shard(
    service: OperationService, broker: Spiteful, error: BrokerUnavailable
) -> None:
    away, here = await defined(broker, shard=0), await defined(broker, shard=1)
    await service.keeper.run_round()
    for queue in (away, here):
        await queued_while_away(service, queue)
    broker.closing[away] = error
    await service.keeper.run_round()
    (answer,) = await service.front().push([item(await defined(broker, shard=1), "at once")])
    assert isinstance(answer, Pushed)
    (waits,) = await service.front().push([item(await defined(broker, shard=0), "later")])
    assert isinstance(waits, Queued)


@pytest.mark.parametrize("error", [KeyError("odd"), RecursionError("too deep"), MemoryError()])
async def test_an_operation_that_raises_fails_alone_after_its_retries(
    service: OperationService, broker: Spiteful, database: Database, error: Exception
) -> None:
    bad, good = await defined(broker), await defined(broker)
    await service.keeper.run_round()
    busy(service.admission)
    answers = [(await service.front().push([item(queue, "x")]))[0] for queue in (bad, good)]
    broker.entering[bad] = error
    await rounds(service, database, 1)
    first, second = answers
    assert isinstance(first, Queued)
    assert isinstance(second, Queued)
    assert await show(service, good, second) == ("completed", "")
    status, text = await show(service, bad, first)
    assert (status, type(error).__name__ in text) == ("pending", True)
    await rounds(service, database, 3)
    status, text = await show(service, bad, first)
    assert (status, type(error).__name__ in text) == ("failed", True)


@pytest.mark.parametrize("payload", [b"", b"\x00\x00\x00\x02[]", b'\x00\x00\x00\x11{"messages":[null]}'])
async def test_an_operation_that_cannot_be_read_fails(
    service: OperationService, database: Database, queue: QueueRef, payload: bytes
) -> None:
    await service.keeper.run_round()
    queued = await queued_while_away(service, queue)
    async with database.connection() as connection:
        await execute(connection, _SPOIL, payload=payload)
    await service.keeper.run_round()
    await rounds(service, database, 4)
    status, error = await show(service, queue, queued)
    assert (status, error[:14]) == ("failed", "invalid_input:")


class Killed(Exception):
    """The process ends here."""


async def test_an_operation_that_ends_its_process_is_given_up_and_the_others_run(
    service: OperationService, broker: Spiteful, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer, good = await defined(broker), await defined(broker)
    await service.keeper.run_round()
    busy(service.admission)
    first, second = [(await service.front().push([item(queue, "x")]))[0] for queue in (killer, good)]
    assert isinstance(first, Queued)
    assert isinstance(second, Queued)

    async def dying(broker: Broker, claimed: Sequence[Claimed]) -> list[SettledOperation]:
        if any(one.queue == killer and one.tries <= MAX_TRIES for one in claimed):
            raise Killed
        return await execute_claimed(broker, claimed)

    monkeypatch.setattr(processor, "execute", dying)
    ended = 0
    for _ in range(MAX_TRIES + 3):
        try:
            await service.processor.run_round()
        except Killed:
            ended += 1
        async with database.connection() as connection:
            await execute(connection, _OVERDUE)
    assert ended == MAX_TRIES
    assert await show(service, good, second) == ("completed", "")
    status, error = await show(service, killer, first)
    assert (status, "given up after 10 tries" in error) == ("failed", True)


class Unstorable(MemoryBroker):
    """Answers with an id that PostgreSQL does not take."""

    bad: QueueRef | None = None

    async def enqueue(self, queue: QueueRef, *args: Any, **named: Any) -> list[Enqueued]:
        done = await super().enqueue(queue, *args, **named)
        if queue != self.bad:
            return done
        return [Enqueued(outcome=one.outcome, message_id="\x00") for one in done]  # type: ignore[arg-type]


async def test_a_result_that_cannot_be_stored_fails_alone(database: Database) -> None:
    broker = Unstorable(shards=SHARDS)
    service = OperationService(database=database, broker=broker)
    bad, good = await defined(broker), await defined(broker)
    await service.keeper.run_round()
    busy(service.admission)
    first, second = [(await service.front().push([item(queue, "x")]))[0] for queue in (bad, good)]
    assert isinstance(first, Queued)
    assert isinstance(second, Queued)
    broker.bad = bad
    await rounds(service, database, 1)
    assert await show(service, good, second) == ("completed", "")
    status, error = await show(service, bad, first)
    assert (status, "could not be stored" in error) == ("failed", True)


async def test_gates_are_opened_though_those_of_another_queue_raise(
    service: OperationService, broker: Spiteful
) -> None:
    bad, good = await defined(broker), await defined(broker)
    await service.keeper.run_round()
    busy(service.admission)
    for queue in (bad, good):
        await service.front().push([item(queue, "x")])
    broker.opening[bad] = WeirError("odd")
    await service.processor.run_round()
    (closed,) = await broker.stale_gates(0, older_ms=-1_000)
    assert closed[0] == bad


@pytest.mark.parametrize("away", [False, True])
async def test_bad_input_is_refused_before_it_is_queued(
    service: OperationService, broker: Spiteful, away: bool
) -> None:
    """It was accepted before, or PostgreSQL refused everything that was written together with it."""
    queue = await defined(broker)
    await service.keeper.run_round()
    bad = item(queue, "x", key="a\x00b")
    if away:
        service.reach.lose(service.reach.shard(queue))
        good, answer = await service.front().push([item(queue, "y"), bad])
        assert isinstance(good, Queued)
        assert isinstance(answer, Refused)
        assert isinstance(answer.error, InvalidInput)
    else:
        busy(service.admission)
        with pytest.raises(InvalidInput):
            await service.front().push([item(queue, "y"), bad])
        assert await service.queue.depth() == 0


async def test_an_operation_that_cannot_be_stored_is_refused_alone(
    service: OperationService, broker: Spiteful, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shares its commit with others that arrive in the same moment."""
    bad, good = await defined(broker), await defined(broker)
    await service.keeper.run_round()
    busy(service.admission)
    add, sizes = service.queue.add, []

    async def picky(operations: Sequence[NewOperation]) -> Added:
        sizes.append(len(operations))
        if any(one.queue == bad for one in operations):
            raise InvalidInput("PostgreSQL cannot store that value")
        return await add(operations)

    monkeypatch.setattr(service.queue, "add", picky)
    service.writer._commits = COMMITS - 1
    pushes = [service.front().push([item(queue, "x")]) for queue in (good, bad, good, bad, good)]
    answers = [answer for (answer,) in await asyncio.gather(*pushes)]
    assert max(sizes) > 1
    assert [type(answer) for answer in answers] == [Queued, Refused, Queued, Refused, Queued]
    assert {queue for queue, _ in await broker.stale_gates(0, older_ms=-1_000)} == {good}


async def test_a_round_takes_a_bounded_number_of_bytes(
    service: OperationService, broker: Spiteful, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = [await defined(broker) for _ in range(4)]
    await service.keeper.run_round()
    busy(service.admission)
    monkeypatch.setattr(operation_queue, "MAX_ROUND_BYTES", 150_000)
    for queue in queues:
        await service.front().push([item(queue, "x" * 100_000)])
    done = [await service.processor.run_round() for _ in range(3)]
    assert done == [2, 2, 0]
