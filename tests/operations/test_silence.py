"""PostgreSQL says nothing: what producers are told stays true, whatever it does with what it was given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.processes import frozen_tree
from support.servers import TestServers
from support.waiting import until
from weir.control.database import Database
from weir.control.sql import NamedQuery
from weir.errors import BrokerUnavailable, ControlUnavailable
from weir.exchange.seam import PushAnswer, Pushed, Queued, Refused
from weir.exchange.service import OperationService
from weir.model.message import Enqueued, NewMessage
from weir.model.names import QueueRef
from weir.operations import keeper as keeping
from weir.operations import lapse as lapsing
from weir.operations import writer as writing
from weir.operations.model import NewOperation, OperationStatus
from weir.operations.queue import Added, NotQueued, OperationQueue
from weir.testing.memory import MemoryBroker

from .conftest import busy, drained, idle, item, running

STATUSES = NamedQuery(name="s", sentence="Every operation.", text="SELECT status, error FROM weir.operations")
HOLD = NamedQuery(
    name="hold", sentence="Somebody queued without a gate.", text="UPDATE weir.direct_leases SET ungated = 1"
)


class Silent(OperationQueue):
    """Adds operations, and loses PostgreSQL's answer after `meanwhile` happened."""

    def __init__(self, database: Database, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(database)
        self._meanwhile = meanwhile

    async def add(self, operations: Sequence[NewOperation]) -> Added:
        await super().add(operations)
        await self._meanwhile()
        raise ControlUnavailable("no answer within 3.0 s")


async def nothing() -> None:
    return None


async def test_a_push_that_was_refused_never_runs_even_if_postgresql_took_it(
    database: Database, service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    service.writer._queue = Silent(database, nothing)
    busy(service.admission)
    (answer,) = await service.front().push([item(queue, "refused", key="a")])
    assert isinstance(answer, Refused)
    assert isinstance(answer.error, NotQueued)
    idle(service.admission)
    (direct,) = await service.front().push([item(queue, "direct", key="a")])
    assert isinstance(direct, Pushed)
    assert await service.processor.run_round() == 1
    assert await drained(broker, queue) == ["direct"]
    (row,) = await database.fetch(STATUSES)
    assert row["status"] == OperationStatus.CANCELLED
    assert "not queued" in row["error"]


async def test_a_push_that_another_process_has_run_already_is_told_so(
    database: Database, service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    other = OperationService(database=database, broker=broker, allowance_ms=400)
    service.writer._queue = Silent(database, other.processor.run_round)
    busy(service.admission)
    answers = await service.front().push([item(queue, "1", key="a"), item(queue, "2", key="b")])
    assert [type(answer) for answer in answers] == [Queued, Queued]
    assert sorted(await drained(broker, queue)) == ["1", "2"]


async def test_of_a_batch_that_has_run_in_part_each_push_is_told_its_own_fate(
    database: Database, service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    other = OperationService(database=database, broker=broker, allowance_ms=400)
    other.processor._sizes = {"partitions": 1, "run": 1, "total": 1}
    service.writer._queue = Silent(database, other.processor.run_round)
    busy(service.admission)
    items = [item(queue, text, key=text) for text in ("1", "2", "3")]
    answers = await service.front().push(items)
    told = [
        one.message.payload.decode() for one, a in zip(items, answers, strict=True) if isinstance(a, Queued)
    ]
    assert len(told) == 1
    while await service.processor.run_round():
        pass
    assert await drained(broker, queue) == told


async def test_without_either_store_nobody_knows_and_that_is_said(
    database: Database, service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    async def voided(*_: Any) -> list[bool]:
        raise BrokerUnavailable("away")

    service.writer._queue = Silent(database, nothing)
    broker.void_gates = voided  # type: ignore[method-assign]
    busy(service.admission)
    (answer,) = await service.front().push([item(queue, "1")])
    assert isinstance(answer, Refused)
    assert "not known" in str(answer.error)


async def test_a_direct_push_without_an_answer_is_asked_about_once_it_cannot_be_queued(
    database: Database, broker: MemoryBroker, queue: QueueRef
) -> None:
    """The broker answers too late and PostgreSQL not at all: what was put in is told, the rest is void."""

    class Deaf:
        """Puts in and then stays silent, or stays silent at once."""

        arrives = True

        async def enqueue(
            self, queue: QueueRef, messages: Sequence[NewMessage], **how: Any
        ) -> list[Enqueued]:
            if self.arrives:
                await broker.enqueue(queue, messages, **how)
            raise BrokerUnavailable("no answer")

        def __getattr__(self, name: str) -> Any:
            return getattr(broker, name)

    async def away(*_: Any) -> Added:
        raise NotQueued("no connection")

    deaf = Deaf()
    service = OperationService(database=database, broker=deaf)  # type: ignore[arg-type]
    service.queue.add = away  # type: ignore[method-assign]
    (put_in,) = await service.front().push([item(queue, "in")])
    service.reach.regain(0)
    service.reach.regain(1)
    deaf.arrives = False
    (lost,) = await service.front().push([item(queue, "lost")])
    assert isinstance(put_in, Pushed)
    assert isinstance(lost, Refused)
    assert await drained(broker, queue) == ["in"]


async def test_nobody_waits_longer_than_for_an_answer_to_be_queued(
    database_url: str, broker: MemoryBroker, queue: QueueRef, servers: TestServers
) -> None:
    """Neither the one whose commit hangs, nor those behind it that find no connection."""
    async with Database(database_url, timeout_s=0.5, trusted_s=60, answer_s=1.0) as database:
        service = OperationService(database=database, broker=broker)
        await service.queue.depth()
        busy(service.admission)
        with frozen_tree(servers.postgres.pid):
            started = time.monotonic()
            answers = await asyncio.gather(
                *(service.intake.queue([item(queue, str(n), key=str(n))]) for n in range(20))
            )
            took_s = time.monotonic() - started
        assert {type(answer) for (answer,) in answers} == {Refused}
        assert took_s < 2.5
        while await service.processor.run_round():
            pass
        assert await drained(broker, queue) == []


async def test_pushes_go_on_directly_while_postgresql_hangs(
    database_url: str, broker: MemoryBroker, queue: QueueRef, servers: TestServers
) -> None:
    async with Database(database_url, timeout_s=0.5, trusted_s=1.0, answer_s=3.0) as database:
        service = OperationService(database=database, broker=broker)
        async with running(service):
            await until(lambda: direct(service, queue))
            with frozen_tree(servers.postgres.pid):
                give_up, longest_s, count = time.monotonic() + 5, 0.0, 0
                while time.monotonic() < give_up:
                    started = time.monotonic()
                    assert await direct(service, queue)
                    longest_s, count = max(longest_s, time.monotonic() - started), count + 1
                    await asyncio.sleep(0.02)
    print(f"{count} direct pushes in 5 s of a hanging PostgreSQL, the longest took {longest_s:.3f} s")
    assert longest_s < 1


async def direct(service: OperationService, queue: QueueRef) -> bool:
    (answer,) = await service.front().push([item(queue, "x")])
    return isinstance(answer, Pushed)


async def test_the_keeper_gives_up_on_postgresql_long_before_its_lease_ends(
    service: OperationService, servers: TestServers
) -> None:
    await service.keeper.run_round()
    with frozen_tree(servers.postgres.pid):
        started = time.monotonic()
        await service.keeper.renew()
        took_s = time.monotonic() - started
    assert took_s < keeping.PATIENCE_S + 0.3
    assert 2 * keeping.PATIENCE_S < keeping.ALLOWANCE_MS / 1_000


async def test_a_keeper_that_was_refused_does_not_extend_its_lease_when_postgresql_hangs(
    database: Database, service: OperationService, broker: MemoryBroker, servers: TestServers
) -> None:
    """It knows of an operation that waits without a gate, so nothing may overtake it."""
    await service.keeper.run_round()
    await database.execute(HOLD)
    await service.keeper.renew()
    until = dict(broker._gates._direct_until)
    with frozen_tree(servers.postgres.pid):
        await service.keeper.renew()
    assert broker._gates._direct_until == until


async def test_who_queues_without_a_gate_waits_for_a_whole_lease(
    database: Database, broker: MemoryBroker, queue: QueueRef
) -> None:
    """Also if none is granted: a keeper that PostgreSQL did not answer may have extended one a moment ago."""
    service = OperationService(database=database, broker=broker, allowance_ms=400)
    for shard in range(broker.shards):
        service.reach.lose(shard)
    for least_s, most_s in ((0.4, 10), (0, 0.4)):
        started = time.monotonic()
        (answer,) = await service.front().push([item(queue, "x")])
        took_s = time.monotonic() - started
        assert isinstance(answer, Queued)
        assert least_s <= took_s < most_s


@asynccontextmanager
async def held_back(
    database_url: str, broker: MemoryBroker, queue: QueueRef, *, allowance_s: float
) -> AsyncIterator[tuple[OperationService, asyncio.Task[list[PushAnswer]]]]:
    """A push of a process that has lost the broker: PostgreSQL took it, and it waits for a whole lease."""
    async with Database(database_url, timeout_s=0.5) as database:
        service = OperationService(database=database, broker=broker, allowance_ms=int(allowance_s * 1_000))
        for shard in range(broker.shards):
            service.reach.lose(shard)
        pushing = asyncio.create_task(service.front().push([item(queue, "x")]))
        async with Database(database_url) as looker:
            await until(lambda: _any(looker))
        yield service, pushing


async def _any(database: Database) -> bool:
    return bool(await database.fetch(STATUSES))


async def test_who_queues_without_a_gate_waits_anew_after_a_silence_of_postgresql(
    database_url: str, broker: MemoryBroker, queue: QueueRef, servers: TestServers
) -> None:
    """Meanwhile a keeper may have extended its lease without it. Whoever comes later waits for that too."""
    allowance_s = 1.5
    async with held_back(database_url, broker, queue, allowance_s=allowance_s) as (service, pushing):
        with frozen_tree(servers.postgres.pid):
            await asyncio.sleep(0.8)
        heard_s = time.monotonic()
        (later,) = await service.front().push([item(queue, "y")])
        assert time.monotonic() - heard_s > allowance_s / 2
        (answer,) = await pushing
        assert time.monotonic() - heard_s < allowance_s + lapsing.PROLONG_S
        assert (type(answer), type(later)) == (Queued, Queued)


async def test_a_keeper_takes_back_what_it_extended_alone_when_it_hears_of_an_operation_without_a_gate(
    database: Database, broker: MemoryBroker, queue: QueueRef, servers: TestServers
) -> None:
    service = OperationService(database=database, broker=broker)
    await service.keeper.run_round()
    with frozen_tree(servers.postgres.pid):
        await service.keeper.renew()
    assert await direct(service, queue)
    await database.execute(HOLD)
    await service.keeper.renew()
    assert not await direct(service, queue)


async def test_an_operation_that_is_durable_is_never_refused_because_postgresql_hangs_then(
    database_url: str, broker: MemoryBroker, queue: QueueRef, servers: TestServers
) -> None:
    """The broker is away for this process; PostgreSQL took the operation and hangs while it is held back."""
    async with held_back(database_url, broker, queue, allowance_s=0.6) as (_, pushing):
        with frozen_tree(servers.postgres.pid):
            (answer,) = await pushing
        assert isinstance(answer, Queued)


async def test_what_waits_for_a_commit_that_never_begins_is_not_queued(
    service: OperationService, queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "COMMITS", 0)
    monkeypatch.setattr(writing, "GATHER_S", 0.1)
    busy(service.admission)
    (answer,) = await service.front().push([item(queue, "x")])
    assert isinstance(answer, Refused)
    assert isinstance(answer.error, NotQueued)
    assert service.writer._waiting == []
