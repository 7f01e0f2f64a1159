"""Where pushes and acks come in: executed at once, queued behind what is queued, or turned away.

Queueing closes the gate of the partition in the broker first, then writes to PostgreSQL, then answers;
from then on every direct enqueue of that partition, in any process, is GATED and queues behind. With the
broker out of reach the gate stays open and the operation says so; the keeper's lease makes that safe.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weir.admission.admission import Admission
from weir.admission.decide import Decision
from weir.admission.kinds import OperationType
from weir.broker.broker import Broker, Call, Gated
from weir.errors import BrokerUnavailable, Overloaded, WeirError
from weir.model.ids import new_operation_id
from weir.model.message import Enqueue, Failure, NewMessage, Settlement
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.operations.calls import CallLanes
from weir.operations.estimate import UNKNOWN, Rate
from weir.operations.model import NewOperation, Reason, Ticket, lane_alone, lane_of
from weir.operations.payload import Push, Settle, encode_push, encode_settle
from weir.operations.queue import NotQueued
from weir.operations.reach import Reach
from weir.operations.writer import OperationWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class PushItem:
    queue: QueueRef
    message: NewMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What became of one item: an outcome, a ticket if it was queued, or the error that kept it out."""

    item: PushItem
    outcome: Enqueue | None = None
    message_id: str = ""
    ticket: Ticket | None = None
    error: WeirError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """An item on its way: its place in the request, and in a call of unknown outcome."""

    at: int
    item: PushItem
    place: int = 0


class Intake:
    """One for each process; everything that pushes on behalf of a producer goes through it."""

    def __init__(
        self,
        *,
        broker: Broker,
        writer: OperationWriter,
        admission: Admission,
        reach: Reach,
        calls: CallLanes,
        rate: Callable[[], Rate] = lambda: UNKNOWN,
    ) -> None:
        self._broker = broker
        self._writer = writer
        self._admission = admission
        self._reach = reach
        self._calls = calls
        self._rate = rate

    async def push(self, items: Sequence[PushItem]) -> list[Pushed]:
        """Put messages in; answers for each, in order. Overloaded if none may enter."""
        decision = self._admission.decide(OperationType.PUSH)
        if decision is Decision.REJECT:
            raise self.overloaded()
        answers: list[Pushed | None] = [None] * len(items)
        for queue, entries in _by_queue(items).items():
            if decision is Decision.EXECUTE:
                await self._execute(queue, entries, answers)
            else:
                await self._queue(queue, entries, answers, reason=Reason.SYSTEM_BUSY)
        return [answer for answer in answers if answer is not None]

    def overloaded(self) -> Overloaded:
        """The refusal, with when to come back: the time in which a tenth of the queue drains."""
        depth = self._admission.depth
        wait_ms = self._rate().wait_ms(max(1, depth // 10)) or 5_000
        return Overloaded(
            f"the operation queue holds {depth} operations and this process is busy; try again later",
            retry_after_s=max(1.0, min(30.0, wait_ms / 1000)),
        )

    async def _execute(self, queue: QueueRef, entries: list[_Entry], answers: list[Pushed | None]) -> None:
        shard = self._shard(queue)
        if not self._reach.reachable(shard):
            await self._queue(queue, entries, answers, reason=Reason.BROKER_UNAVAILABLE)
            return
        lane = self._calls.take()
        call = Call(lane=lane, id=new_operation_id())
        try:
            with self._admission.executing():
                results = await self._broker.enqueue(
                    queue, [entry.item.message for entry in entries], call=call
                )
        except BrokerUnavailable:
            self._reach.lost(shard)
            placed = [_Entry(at=e.at, item=e.item, place=n) for n, e in enumerate(entries)]
            await self._queue(queue, placed, answers, reason=Reason.BROKER_UNAVAILABLE, call=call)
            return
        except WeirError as error:
            self._calls.give_back(lane)
            for entry in entries:
                answers[entry.at] = Pushed(item=entry.item, error=error)
            return
        self._calls.give_back(lane)
        gated: list[_Entry] = []
        for entry, result in zip(entries, results, strict=True):
            if result.outcome is Enqueue.GATED:
                gated.append(entry)
            else:
                answers[entry.at] = Pushed(
                    item=entry.item, outcome=result.outcome, message_id=result.message_id
                )
        if gated:
            await self._queue(queue, gated, answers, reason=Reason.MAINTAINING_ORDER)

    async def _queue(
        self,
        queue: QueueRef,
        entries: list[_Entry],
        answers: list[Pushed | None],
        *,
        reason: Reason,
        call: Call | None = None,
    ) -> None:
        """Queue entries of one queue, an operation a partition."""
        if self._admission.enabled and self._admission.full(OperationType.PUSH):
            error: WeirError = self.overloaded()
            for entry in entries:
                answers[entry.at] = Pushed(item=entry.item, error=error)
            return
        partitions: dict[str | None, list[_Entry]] = defaultdict(list)
        for entry in entries:
            partitions[entry.item.message.key].append(entry)
        operations = [self._operation(queue, key, group, call=call) for key, group in partitions.items()]
        try:
            tickets = await self._add(queue, operations, reason=reason)
        except WeirError as failed:
            for entry in entries:
                answers[entry.at] = Pushed(item=entry.item, error=failed)
            return
        for ticket, group in zip(tickets, partitions.values(), strict=True):
            for entry in group:
                answers[entry.at] = Pushed(item=entry.item, message_id=entry.item.message.id, ticket=ticket)

    def _operation(
        self, queue: QueueRef, key: str | None, group: list[_Entry], *, call: Call | None
    ) -> NewOperation:
        push = Push(
            messages=tuple(entry.item.message for entry in group),
            call=call,
            places=tuple(entry.place for entry in group) if call else (),
        )
        return NewOperation(
            queue=queue,
            key=key,
            type=OperationType.PUSH,
            lane=lane_of(queue, key),
            shard=self._shard(queue),
            payload=encode_push(push),
            messages=len(group),
        )

    async def _add(self, queue: QueueRef, operations: list[NewOperation], *, reason: Reason) -> list[Ticket]:
        gates = [Gated(key=operation.key, operation=operation.id) for operation in operations]
        if not await self._close(queue, gates):
            operations = [operation.without_gate() for operation in operations]
            reason = Reason.BROKER_UNAVAILABLE
        try:
            depth = await self._writer.add(operations)
        except NotQueued:
            if operations[0].gated:
                await self._open(queue, gates)
            raise
        return self._tickets(operations, depth=depth, reason=reason)

    async def _close(self, queue: QueueRef, gates: list[Gated]) -> bool:
        shard = self._shard(queue)
        if not self._reach.reachable(shard):
            return False
        try:
            await self._broker.close_gates(queue, gates)
        except BrokerUnavailable:
            self._reach.lost(shard)
            return False
        return True

    async def _open(self, queue: QueueRef, gates: list[Gated]) -> None:
        try:
            await self._broker.open_gates(queue, gates)
        except BrokerUnavailable:
            self._reach.lost(self._shard(queue))

    def _tickets(self, operations: list[NewOperation], *, depth: int, reason: Reason) -> list[Ticket]:
        rate = UNKNOWN if reason is Reason.BROKER_UNAVAILABLE else self._rate()
        return [
            Ticket(
                operation_id=operation.id,
                position=max(1, depth - len(operations) + n),
                estimated_wait_ms=rate.wait_ms(max(0, depth - len(operations) + n)),
                reason=reason,
            )
            for n, operation in enumerate(operations, start=1)
        ]

    async def settle(self, verb: str, failures: Sequence[Failure]) -> list[Settlement] | Ticket:
        """Ack or nack leases: at once while the broker answers, queued only when it is out of reach.

        Settling is one short script, as cheap as keeping the leases alive in the meantime would be; so
        pressure never queues it.
        """
        if not failures:
            return []
        shards = {self._shard(failure.lease.queue) for failure in failures}
        if all(map(self._reach.reachable, shards)):
            try:
                return await settle_through(self._broker, verb, failures)
            except BrokerUnavailable:
                for shard in shards:
                    self._reach.lost(shard)
        operation_id = new_operation_id()
        queue = failures[0].lease.queue
        operation = NewOperation(
            id=operation_id,
            queue=queue,
            key=None,
            type=OperationType.ACK_BATCH if len(failures) > 1 else OperationType.ACK_SINGLE,
            lane=lane_alone(operation_id),
            shard=self._shard(queue),
            payload=encode_settle(Settle(verb=verb, failures=tuple(failures))),
            messages=len(failures),
        )
        depth = await self._writer.add([operation])
        return self._tickets([operation], depth=depth, reason=Reason.BROKER_UNAVAILABLE)[0]

    def _shard(self, queue: QueueRef) -> int:
        return shard_of(queue.scope, shards=self._broker.shards)


async def settle_through(broker: Broker, verb: str, failures: Sequence[Failure]) -> list[Settlement]:
    """Ack, nack or dead-letter through the broker, by the verb's name."""
    if verb == "ack":
        return await broker.ack([failure.lease for failure in failures])
    if verb == "nack":
        return await broker.nack(failures)
    if verb == "dead_letter":
        return await broker.dead_letter(failures)
    raise ValueError(f"`{verb}` settles nothing")


def _by_queue(items: Sequence[PushItem]) -> dict[QueueRef, list[_Entry]]:
    groups: dict[QueueRef, list[_Entry]] = defaultdict(list)
    for at, item in enumerate(items):
        groups[item.queue].append(_Entry(at=at, item=item))
    return groups
