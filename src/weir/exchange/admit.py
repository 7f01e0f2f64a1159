"""Every push of a producer is admitted here: executed through the direct attempt, queued, or turned away.

Queueing closes the gate of the partition in the broker first, then writes to PostgreSQL, then answers;
from then on every direct enqueue of that partition, in any process, is GATED and queues behind. With the
broker out of reach the gate stays open and the operation says so; the keeper's lease makes that safe.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from weir.admission.admission import Admission
from weir.admission.decide import Decision
from weir.admission.kinds import OperationType
from weir.broker.broker import Broker, CallAnswer, NamedCall
from weir.errors import BrokerUnavailable, Overloaded, WeirError
from weir.exchange.attempt import Answers, Held, told_answer
from weir.exchange.metrics import AnswerTally
from weir.exchange.seam import PushAnswer, Pusher, PushItem, Queued, Refused
from weir.model.asyncio_tasks import all_of
from weir.model.durations import DAY_MS
from weir.model.holders import HOLDER, Holder
from weir.model.ids import OperationId
from weir.model.message import NewMessage
from weir.model.names import QueueRef
from weir.operations.estimate import UNKNOWN, Rate
from weir.operations.gates import BROKER_ANSWER_S, Reach
from weir.operations.model import NewOperation, Reason, Ticket, partition_of, queue_full
from weir.operations.payload import Push, encode_push
from weir.operations.writer import OperationWriter, Written

Place = tuple[QueueRef, Reason, NamedCall | None]
"""Messages that may share a batch of operations."""
Partition = list[tuple[int, PushItem, int]]
"""Messages on their way: place in the request, the item, place in a call of unknown outcome."""
NAMED_WINDOW_MS = DAY_MS
"""How long a message of a named call that was queued is known by its key: producers repeat it for minutes."""
_UNKNOWN = BrokerUnavailable("the broker did not answer in time; try again", retry_after_s=1)
REFUSALS_PER_S = 300
"""How many refusals a second a process wants to give; with more, callers are asked to stay away longer."""


class AdmittingPusher:
    """A `Pusher` that executes through `attempt`, queues or turns away, as pressure says.

    Requests are counted in flight here, so those that wait for others to share a broker call with count.
    What the attempt held is queued here, outside of the shared call and after leaving the flight.
    """

    def __init__(self, attempt: Pusher, *, intake: Intake, overflow: Overflow, admission: Admission) -> None:
        self._attempt = attempt
        self._intake = intake
        self._overflow = overflow
        self._admission = admission

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        """Answer for each item in order; Overloaded if none may enter."""
        holder = HOLDER.get()
        decision = self._admission.decide(OperationType.PUSH, holder)
        if decision is Decision.EXECUTE:
            with self._admission.executing(holder, calls=_calls(items)):
                answers = await self._attempt.push(items)
            if any(isinstance(answer, Held) for answer in answers):
                return await self._intake.keep(items, answers)
            return answers
        if decision is Decision.QUEUE:
            return await self._intake.queue(items)
        raise self._overflow.refuse()


class Intake:
    """Queues what is not executed: an operation per partition, and an answer for each message."""

    def __init__(self, overflow: Overflow, *, broker: Broker, reach: Reach) -> None:
        self._overflow = overflow
        self._broker = broker
        self._reach = reach

    async def queue(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        """Queue everything, because this process is busy."""
        answers: Answers = {}
        if (call := items[0].named) is not None:
            # Its producer may have tried before, and got no answer.
            told = await self._ask(items[0].queue, call)
            if told is None:
                reason = Reason.BROKER_UNAVAILABLE
                held: list[PushAnswer] = [
                    Held(error=_UNKNOWN, reason=reason, call=call, place=at) for at in range(len(items))
                ]
                return await self.keep(items, held)
            _take_settled(told, list(enumerate(items)), answers)
        groups: dict[Place, Partition] = defaultdict(list)
        for at, item in enumerate(items):
            if at not in answers:
                groups[item.queue, Reason.SYSTEM_BUSY, None].append((at, item, 0))
        await self._queue_groups(groups, answers)
        return [answers[at] for at in range(len(items))]

    async def _ask(self, queue: QueueRef, call: NamedCall) -> list[CallAnswer] | None:
        """What a call did; it does nothing from now on. None if the broker does not tell."""
        try:
            async with asyncio.timeout(BROKER_ANSWER_S):
                return await self._broker.settle_call(queue, call)
        except (WeirError, TimeoutError):
            return None

    async def keep(self, items: Sequence[PushItem], attempted: Sequence[PushAnswer]) -> list[PushAnswer]:
        """Queue what a direct attempt held; other answers stay as they are."""
        groups: dict[Place, Partition] = defaultdict(list)
        for at, (item, answer) in enumerate(zip(items, attempted, strict=True)):
            if isinstance(answer, Held):
                groups[item.queue, answer.reason, answer.call].append((at, item, answer.place))
        if not groups:
            return list(attempted)
        answers: Answers = dict(enumerate(attempted))
        await self._queue_groups(groups, answers)
        return [answers[at] for at in range(len(items))]

    async def _queue_groups(self, groups: dict[Place, Partition], answers: Answers) -> None:
        await all_of([self._queue(*place, group, answers) for place, group in groups.items()])

    async def _queue(
        self, queue: QueueRef, reason: Reason, call: NamedCall | None, group: Partition, answers: Answers
    ) -> None:
        """Queue messages of one queue, an operation per partition."""
        partitions: dict[str | None, Partition] = defaultdict(list)
        for entry in group:
            partitions[entry[1].message.key].append(entry)
        operations = [self._operation(queue, key, part, call) for key, part in partitions.items()]
        try:
            tickets = await self._overflow.add(operations, reason=reason, must=call is not None)
        except WeirError as error:
            tickets = [error] * len(operations)
        refused: Partition = []
        for ticket, part in zip(tickets, partitions.values(), strict=True):
            if isinstance(ticket, WeirError):
                answers.update((at, Refused(error=ticket)) for at, _, _ in part)
                refused += part
                continue
            for number, (at, item, _) in enumerate(part):
                fits = number < ticket.messages
                answers[at] = _queued(ticket, item) if fits else Refused(error=queue_full(queue))
        if refused and call is not None:
            await self._settle_attempt(queue, call, refused, answers)

    async def _settle_attempt(
        self, queue: QueueRef, call: NamedCall, refused: Partition, answers: Answers
    ) -> None:
        """Messages that could not be queued, after a direct attempt of unknown outcome: by now the broker may
        say what it did. What it did not put in, it never will."""
        told = await self._ask(queue, call)
        if told is None:
            return
        for at, item, place in refused:
            if place < len(told) and told[place].settled:
                answers[at] = told_answer(item, told[place])

    def _operation(
        self, queue: QueueRef, key: str | None, part: Partition, call: NamedCall | None
    ) -> NewOperation:
        push = Push(
            messages=tuple(_for_later(item, at) for at, item, _ in part),
            call=call,
            places=tuple(place for _, _, place in part) if call else (),
        )
        return NewOperation(
            queue=queue,
            key=key,
            type=OperationType.PUSH,
            partition=partition_of(queue, key),
            shard=self._reach.shard(queue),
            payload=encode_push(push),
            messages=len(part),
            call_slot=None if call is None else call.slot,
        )


class Overflow:
    """Queues operations and says where they stand."""

    def __init__(
        self,
        *,
        writer: OperationWriter,
        admission: Admission,
        tally: AnswerTally,
        rate: Callable[[], Rate],
    ) -> None:
        self._writer = writer
        self._admission = admission
        self._tally = tally
        self._rate = rate
        self._refusals = RecentCount()

    def admit(self, kind: OperationType, holder: Holder) -> None:
        """Turn an operation away before anything is read or parsed for it, if that is what would happen."""
        if self._admission.peek(kind, holder) is Decision.REJECT:
            error = self.refuse()
            if kind is OperationType.PUSH:
                self._tally.count_refusal(error)
            raise error

    def refuse(self, *, times: int = 1) -> Overloaded:
        """Count so many refusals; the error says to come back once a tenth of the queue has drained, later if
        many others are refused."""
        depth = self._admission.depth
        drain_ms = self._rate().wait_ms(depth // 10) or 1_000
        wait_ms = max(drain_ms, self._refusals.count(times) / REFUSALS_PER_S * 1000)
        spread = 1 + random.random() / 2
        return Overloaded(
            f"this process is busy and {depth} operations are queued; try again later",
            retry_after_s=max(1.0, min(30.0, wait_ms / 1000)) * spread,
            quota=self._admission.policy.of(OperationType.PUSH).depth,
            reason=self._admission.rejection(OperationType.PUSH).value,
            **{"violated-policies": ["operations"]},
        )

    async def add(
        self, operations: list[NewOperation], *, reason: Reason, must: bool = False
    ) -> list[Ticket | WeirError]:
        """Queue pushes of one queue, in order with everything else of their partitions; an answer for each.

        A ticket says how many messages it is for: those for which the queue has room. With `must` they are
        queued however many there are: they may have taken effect already.
        """
        for_load = reason is not Reason.BROKER_UNAVAILABLE
        admission, holder = self._admission, HOLDER.get()
        if not must and not admission.may_queue(
            OperationType.PUSH, len(operations), holder, for_load=for_load
        ):
            raise self.refuse()
        with admission.entering(sum(operation.messages for operation in operations), holder):
            written = await self._writer.add(operations)
        if for_load and not must:
            admission.return_unqueued(len(written.refused), holder)
        if not written.gated:
            reason = Reason.BROKER_UNAVAILABLE
        tickets = self._tickets(written, reason=reason)
        return [written.refused.get(one.id) or tickets[one.id] for one in operations]

    async def add_alone(self, operation: NewOperation) -> Ticket:
        """Queue an operation that needs neither order nor a gate."""
        written = await self._writer.add([operation])
        if written.refused:
            raise written.refused[operation.id]
        return self._tickets(written, reason=Reason.BROKER_UNAVAILABLE)[operation.id]

    def _tickets(self, written: Written, *, reason: Reason) -> dict[OperationId, Ticket]:
        rate = UNKNOWN if reason is Reason.BROKER_UNAVAILABLE else self._rate()
        first = max(1, written.depth - len(written.operations) + 1)
        return {
            operation.id: Ticket(
                operation_id=operation.id,
                position=position,
                estimated_wait_ms=rate.wait_ms(position),
                reason=reason,
                messages=operation.messages,
            )
            for position, operation in enumerate(written.operations, start=first)
        }


class RecentCount:
    """How many times something happened in about the last second."""

    def __init__(self) -> None:
        self._value = 0.0
        self._at = time.monotonic()

    def count(self, times: int) -> float:
        """Count some more; the sum, in which what is long ago fades."""
        now = time.monotonic()
        self._value = self._value * math.exp(self._at - now) + times
        self._at = now
        return self._value


def _take_settled(
    told: Sequence[CallAnswer], items: Sequence[tuple[int, PushItem]], answers: Answers
) -> None:
    """Answer for messages that a call has put in, by their places in it."""
    for place, item in items:
        if place < len(told) and told[place].settled:
            answers[place] = told_answer(item, told[place])


def _for_later(item: PushItem, at: int) -> NewMessage:
    """The message as an operation puts it in. One of a named call may be queued twice, so it gets a key."""
    message, call = item.message, item.named
    if call is None or message.idempotency_key is not None:
        return message
    key = f"{call.slot}/{call.id}/{at}"
    return replace(message, idempotency_key=key, idempotency_window_ms=NAMED_WINDOW_MS)


def _calls(items: Sequence[PushItem]) -> int:
    """How many calls of the broker they take: one for each queue."""
    # By identity: references to queues are cached, and hashing them would cost a batch a few per cent.
    return 1 if len(items) == 1 else len({id(item.queue) for item in items})


def _queued(ticket: Ticket, item: PushItem) -> Queued:
    return Queued(
        operation_id=ticket.operation_id,
        position=ticket.position,
        estimated_wait_ms=ticket.estimated_wait_ms,
        reason=ticket.reason.value,
        # Whether it is the first with its key only the broker knows, once it is put in.
        message_id=item.message.id if item.message.idempotency_key is None else None,
    )
