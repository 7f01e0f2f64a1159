"""The way of pushes into the operation queue: one operation a partition, and an answer for each message.

Queueing closes the gate of the partition in the broker first, then writes to PostgreSQL, then answers;
from then on every direct enqueue of that partition, in any process, is GATED and queues behind. With the
broker out of reach the gate stays open and the operation says so; the keeper's lease makes that safe.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from weir.admission.kinds import OperationType
from weir.broker.broker import Broker, NamedCall
from weir.errors import Overloaded, WeirError
from weir.model.asyncio_tasks import all_of
from weir.model.exchange import PushAnswer, PushItem, Queued, Refused, push_answer, queue_full
from weir.model.message import Enqueued
from weir.model.names import QueueRef
from weir.operations.attempt import Answers, Held
from weir.operations.model import NewOperation, Reason, Ticket, lane_of
from weir.operations.overflow import Overflow
from weir.operations.payload import Push, encode_push
from weir.operations.reach import BROKER_ANSWER_S

Place = tuple[QueueRef, Reason, NamedCall | None]
"""Messages that may share a batch of operations."""
Partition = list[tuple[int, PushItem, int]]
"""Messages on their way: place in the request, the item, place in a call of unknown outcome."""


class Intake:
    """Queues what is not executed, one for each process."""

    def __init__(self, overflow: Overflow, *, broker: Broker) -> None:
        self._overflow = overflow
        self._broker = broker

    async def queue(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        """Queue everything, because this process is busy."""
        groups: dict[Place, Partition] = defaultdict(list)
        for at, item in enumerate(items):
            groups[item.queue, Reason.SYSTEM_BUSY, None].append((at, item, 0))
        answers: Answers = {}
        await self._queue_groups(groups, answers)
        return [answers[at] for at in range(len(items))]

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

    def overloaded(self, *, refused: int = 1) -> Overloaded:
        """The refusal of so many, with when to come back."""
        return self._overflow.overloaded(refused=refused)

    async def _queue_groups(self, groups: dict[Place, Partition], answers: Answers) -> None:
        await all_of([self._queue(*place, group, answers) for place, group in groups.items()])

    async def _queue(
        self, queue: QueueRef, reason: Reason, call: NamedCall | None, group: Partition, answers: Answers
    ) -> None:
        """Queue messages of one queue, an operation a partition."""
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
        try:
            async with asyncio.timeout(BROKER_ANSWER_S):
                told = await self._broker.settle_call(queue, call)
        except (WeirError, TimeoutError):
            return
        for at, item, place in refused:
            if place < len(told) and told[place].settled:
                message_id = told[place].first_id or item.message.id
                answers[at] = push_answer(queue, Enqueued(outcome=told[place].outcome, message_id=message_id))

    def _operation(
        self, queue: QueueRef, key: str | None, part: Partition, call: NamedCall | None
    ) -> NewOperation:
        push = Push(
            messages=tuple(item.message for _, item, _ in part),
            call=call,
            places=tuple(place for _, _, place in part) if call else (),
        )
        return NewOperation(
            queue=queue,
            key=key,
            type=OperationType.PUSH,
            lane=lane_of(queue, key),
            shard=self._overflow.shard(queue),
            payload=encode_push(push),
            messages=len(part),
            call_lane=None if call is None else call.lane,
        )


def _queued(ticket: Ticket, item: PushItem) -> Queued:
    return Queued(
        operation_id=ticket.operation_id,
        position=ticket.position,
        estimated_wait_ms=ticket.estimated_wait_ms,
        reason=ticket.reason.value,
        # Whether it is the first with its key only the broker knows, once it is put in.
        message_id=item.message.id if item.message.idempotency_key is None else None,
    )
