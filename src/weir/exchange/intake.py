"""Queues pushes that are not executed, and answers for each message."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from weir.admission.kinds import OperationType
from weir.broker.broker import Broker, CallAnswer
from weir.errors import BrokerUnavailable, WeirError
from weir.exchange.admit import Overflow
from weir.exchange.attempt import Answers, Held, told_answer
from weir.exchange.seam import PushAnswer, PushItem, Queued, Refused
from weir.model.asyncio_tasks import all_of
from weir.model.durations import DAY_MS
from weir.model.ids import NamedCall
from weir.model.message import NewMessage
from weir.model.names import QueueRef
from weir.operations.gates import BROKER_ANSWER_S, Reach
from weir.operations.model import NewOperation, Reason, Ticket, partition_of, queue_full
from weir.operations.payload import Push, encode_push

Place = tuple[QueueRef, Reason, NamedCall | None]
"""Messages with the same queue, reason and call may share a batch of operations."""
Partition = list[tuple[int, PushItem, int]]
"""Messages on their way: place in the request, the item, place in a call of unknown outcome."""
NAMED_WINDOW_MS = DAY_MS
"""How long a queued message of a named call is known by its idempotency key. Producers repeat for minutes."""
_UNKNOWN = BrokerUnavailable("the broker did not answer in time; try again", retry_after_s=1)


class Intake:
    """Queues messages that are not executed: an operation per partition, and an answer per message."""

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
        """Ask what a call did; from now on it does nothing. None if the broker does not answer."""
        try:
            async with asyncio.timeout(BROKER_ANSWER_S):
                return await self._broker.settle_call(queue, call)
        except (WeirError, TimeoutError):
            return None

    async def keep(self, items: Sequence[PushItem], attempted: Sequence[PushAnswer]) -> list[PushAnswer]:
        """Queue messages that a direct attempt held; other answers stay as they are."""
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
        """Answer for messages that could not be queued after a direct attempt of unknown outcome. By now the
        broker may say what the attempt did. Messages that it did not put in never come."""
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


def _take_settled(
    told: Sequence[CallAnswer], items: Sequence[tuple[int, PushItem]], answers: Answers
) -> None:
    """Answer for messages that a call has put in, by their places in it."""
    for place, item in items:
        if place < len(told) and told[place].settled:
            answers[place] = told_answer(item, told[place])


def _for_later(item: PushItem, at: int) -> NewMessage:
    """The message as an operation puts it in. In a named call it may be queued twice, so it gets a key."""
    message, call = item.message, item.named
    if call is None or message.idempotency_key is not None:
        return message
    key = f"{call.slot}/{call.id}/{at}"
    return replace(message, idempotency_key=key, idempotency_window_ms=NAMED_WINDOW_MS)


def _queued(ticket: Ticket, item: PushItem) -> Queued:
    return Queued(
        operation_id=ticket.operation_id,
        position=ticket.position,
        estimated_wait_ms=ticket.estimated_wait_ms,
        reason=ticket.reason.value,
        # Only the broker knows whether the message is the first with its key, once it is put in. A named call
        # has the same ids each time that it is queued.
        message_id=item.message.id if item.message.idempotency_key is None else None,
    )
