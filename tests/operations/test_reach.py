"""An error of one request never makes a process take a shard for lost."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from weir.broker.broker import CallAnswer
from weir.broker.failures import ScriptFailed
from weir.control.database import Database
from weir.errors import BrokerUnavailable, CallStale, KeyReused, NotFound, WeirError
from weir.exchange.resume import ResumingPusher
from weir.exchange.seam import Pushed, PushItem, Queued, Refused, ResumedCall, Settled, SettleItem
from weir.exchange.service import OperationService
from weir.model.ids import NamedCall, new_message_id
from weir.model.message import LeaseRef, NewMessage, Settlement, Verb
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.operations.model import NewOperation, partition_of
from weir.spec.ir import QueueSpec
from weir.testing.memory import MemoryBroker

from .conftest import busy, drained, idle, item

SLOT = "a token/mine"
ANSWERED = [
    BrokerUnavailable("Redis is out of memory", refused=True),
    ScriptFailed("a script failed"),
    CallStale("late"),
]


def named(queue: QueueRef, number: int, *texts: str, digest: bytes = b"") -> list[PushItem]:
    call = NamedCall(slot=SLOT, id=str(number), digest=digest)
    return [PushItem(queue=queue, message=NewMessage(payload=text.encode()), named=call) for text in texts]


async def refusal(service: OperationService, items: list[PushItem]) -> WeirError:
    answers = await service.front().push(items)
    (error,) = {answer.error for answer in answers if isinstance(answer, Refused)}
    assert len(answers) == len(items)
    return error


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_stale_call_and_one_with_other_messages_are_refused_and_never_queued(
    service: OperationService, queue: QueueRef, is_busy: bool
) -> None:
    await service.keeper.run_round()
    for number, digest in ((1, b"a" * 16), (2, b"b" * 16)):
        answers = await service.front().push(named(queue, number, "x", digest=digest))
        assert isinstance(answers[0], Pushed)
    (busy if is_busy else idle)(service.admission)
    assert isinstance(await refusal(service, named(queue, 1, "x", "y")), CallStale)
    assert isinstance(await refusal(service, named(queue, 2, "z", digest=b"c" * 16)), KeyReused)
    assert service.reach.lost == set()
    assert await service.queue.depth() == 0


async def test_a_stale_call_of_an_item_is_refused(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    await service.keeper.run_round()
    await broker.enqueue(queue, [NewMessage(payload=b"x")], entry=NamedCall(slot=SLOT, id="2"))
    pusher = ResumingPusher(service.front(), broker=broker, intake=service.intake)
    resumes = ResumedCall(call=NamedCall(slot=SLOT, id="1"), place=0)
    late = PushItem(queue=queue, message=NewMessage(payload=b"y"), resumes=resumes)
    (answer,) = await pusher.push([late])
    assert isinstance(answer, Refused)
    assert isinstance(answer.error, CallStale)


class Refusing(MemoryBroker):
    """Answers each call with the same error."""

    error: WeirError | None = None

    def _refuse(self) -> None:
        if self.error is not None:
            raise self.error

    async def enqueue(self, *args: Any, **named: Any) -> Any:
        self._refuse()
        return await super().enqueue(*args, **named)

    async def ack(self, *args: Any, **named: Any) -> Any:
        self._refuse()
        return await super().ack(*args, **named)

    async def close_gates(self, *args: Any, **named: Any) -> Any:
        self._refuse()
        return await super().close_gates(*args, **named)

    async def open_gates(self, queue: QueueRef, gates: object) -> None:
        self._refuse()

    async def void_gates(self, queue: QueueRef, gates: object) -> list[bool]:
        self._refuse()
        return []

    async def settle_call(self, queue: QueueRef, call: NamedCall) -> list[CallAnswer]:
        self._refuse()
        return []

    async def now_ms(self, shard: int) -> int:
        self._refuse()
        return 1


@pytest.mark.parametrize("error", ANSWERED, ids=lambda error: type(error).__name__)
async def test_what_the_broker_answered_loses_no_shard(
    database: Database, queue: QueueRef, error: WeirError
) -> None:
    broker = Refusing(shards=2)
    await broker.define(queue, QueueSpec(name=queue.queue))
    service = OperationService(database=database, broker=broker)
    broker.error = error
    lease = LeaseRef(queue=queue, message_id=new_message_id(), token="0" * 32)
    operation = NewOperation(
        queue=queue,
        key=None,
        type="PUSH",  # type: ignore[arg-type]
        partition=partition_of(queue, None),
        shard=0,
        payload=b"",
        messages=1,
        id=str(uuid4()),  # type: ignore[arg-type]
    )
    gates = service.writer._gates
    await gates.close([operation])
    await gates.void([operation])
    if isinstance(error, BrokerUnavailable):
        await gates.open([operation])
    await service.keeper.renew()
    (pushed,) = await service.front().push([item(queue, "x")])
    (settled,) = await service.settlements.settle([SettleItem(lease=lease, verb=Verb.ACK)])
    assert isinstance(pushed, Refused)
    assert isinstance(settled, Refused)
    assert service.reach.lost == set()


async def test_an_operation_whose_call_was_followed_by_another_is_put_in(
    service: OperationService, broker: MemoryBroker, queue: QueueRef
) -> None:
    """It was accepted, so it is not left out, though nobody can tell any more what its first try did."""
    await service.keeper.run_round()
    service.reach.lose(service.reach.shard(queue))
    (answer,) = await service.front().push(named(queue, 1, "x"))
    assert isinstance(answer, Queued)
    await broker.enqueue(queue, [NewMessage(payload=b"later")], entry=NamedCall(slot=SLOT, id="2"))
    await service.keeper.run_round()
    await service.processor.run_round()
    row = await service.store.read(queue.scope, answer.operation_id)
    assert row["status"] == "completed"
    assert await drained(broker, queue) == ["x"]


def ack(queue: QueueRef) -> SettleItem:
    lease = LeaseRef(queue=queue, message_id=new_message_id(), token="0" * 32)
    return SettleItem(lease=lease, verb=Verb.ACK)


def in_shard(shard: int) -> QueueRef:
    """A queue of a tenant of its own."""
    while True:
        scope = EnvironmentRef(organization=f"o {uuid4().hex}", project="p", environment="e")
        if shard_of(scope, shards=2) == shard:
            return scope.queue("q")


async def test_settlements_of_two_tenants_that_share_a_call_are_queued_apart(
    service: OperationService,
) -> None:
    """Before, both were one operation of the first, who saw it and could cancel it for the other."""
    first, second = in_shard(0), in_shard(0)
    service.reach.lose(0)
    answers = await service.settlements.settle([ack(first), ack(second), ack(first)])
    queued = [answer.operation_id for answer in answers if isinstance(answer, Queued)]
    assert queued[0] == queued[2] != queued[1]
    assert (await service.store.read(first.scope, queued[0]))["messages"] == 2
    assert (await service.store.read(second.scope, queued[1]))["messages"] == 1
    for scope, foreign in ((first.scope, queued[1]), (second.scope, queued[0])):
        with pytest.raises(NotFound):
            await service.store.read(scope, foreign)


class HalfAway(MemoryBroker):
    """Shard 0 does not answer."""

    async def ack(self, leases: Any, **named: Any) -> Any:
        if any(shard_of(lease.queue.scope, shards=2) == 0 for lease in leases):
            raise BrokerUnavailable("no answer")
        return await super().ack(leases, **named)


async def test_settlements_in_a_shard_that_is_away_leave_the_others_alone(database: Database) -> None:
    away, here = in_shard(0), in_shard(1)
    broker = HalfAway(shards=2)
    service = OperationService(database=database, broker=broker)
    for queue in (away, here):
        await broker.define(queue, QueueSpec(name="q"))
    await broker.enqueue(here, [NewMessage(payload=b"x")])
    (got,) = await broker.dequeue(here, consumer="c")
    items = [ack(away), SettleItem(lease=got.lease, verb=Verb.ACK), ack(away)]
    answers = await service.settlements.settle(items)
    assert [type(answer) for answer in answers] == [Queued, Settled, Queued]
    assert answers[1] == Settled(outcome=Settlement.DONE)
    assert service.reach.lost == {0}
