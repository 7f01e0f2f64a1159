"""Queues pushes that are not executed, and answers for each message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from weir.admission.kinds import OperationType
from weir.broker.broker import Broker
from weir.errors import InvalidInput, WeirError
from weir.exchange.admit import Overflow
from weir.exchange.attempt import Answers, Held, ask_call, done_answers
from weir.exchange.seam import PushAnswer, PushItem, Queued, Refused
from weir.model.asyncio_tasks import all_of
from weir.model.durations import DAY_MS
from weir.model.ids import NamedCall
from weir.model.message import NewMessage, check_message
from weir.model.names import QueueRef
from weir.operations.gates import Reach, is_unknown
from weir.operations.model import NewOperation, Reason, Ticket, partition_of, queue_full
from weir.operations.payload import Push, encode_push

BatchKind = tuple[QueueRef, Reason, NamedCall | None]
"""Messages with the same queue, reason and call may share a batch of operations."""
BatchItems = list[tuple[int, PushItem, int]]
"""Messages on their way: place in the request, the item, place in a call of unknown outcome."""
NAMED_WINDOW_MS = DAY_MS
"""How long a queued message of a named call is known by its idempotency key. Producers repeat for minutes."""


class Intake:
    """Queues messages that are not executed: an operation per partition, and an answer per message."""

    def __init__(self, overflow: Overflow, *, broker: Broker, reach: Reach) -> None:
        self._overflow = overflow
        self._broker = broker
        self._reach = reach

    async def queue(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        """Queue everything, because this process is busy."""
        # The broker would refuse bad input only after it was accepted here.
        for item in items:
            check_message(item.message)
        answers: Answers = {}
        if (call := items[0].named) is not None:
            # Its producer may have tried before, and got no answer.
            told = await ask_call(self._broker, items[0].queue, call)
            if isinstance(told, WeirError) and not is_unknown(told):
                return [Refused(error=told)] * len(items)
            if isinstance(told, WeirError):
                reason = Reason.BROKER_UNAVAILABLE
                held: list[PushAnswer] = [
                    Held(error=told, reason=reason, call=call, place=at) for at in range(len(items))
                ]
                return await self.keep(items, held)
            answers = done_answers(told, ((at, item, at) for at, item in enumerate(items)))
        batches: dict[BatchKind, BatchItems] = defaultdict(list)
        for at, item in enumerate(items):
            if at not in answers:
                batches[item.queue, Reason.SYSTEM_BUSY, None].append((at, item, 0))
        await self._queue_batches(batches, answers)
        return [answers[at] for at in range(len(items))]

    async def keep(self, items: Sequence[PushItem], attempted: Sequence[PushAnswer]) -> list[PushAnswer]:
        """Queue messages that a direct attempt held; other answers stay as they are."""
        answers: Answers = dict(enumerate(attempted))
        batches: dict[BatchKind, BatchItems] = defaultdict(list)
        for at, (item, answer) in enumerate(zip(items, attempted, strict=True)):
            if not isinstance(answer, Held):
                continue
            try:
                check_message(item.message)
            except InvalidInput as error:
                answers[at] = Refused(error=error)
            else:
                batches[item.queue, answer.reason, answer.call].append((at, item, answer.place))
        await self._queue_batches(batches, answers)
        return [answers[at] for at in range(len(items))]

    async def _queue_batches(self, batches: dict[BatchKind, BatchItems], answers: Answers) -> None:
        await all_of([self._queue(*kind, items, answers) for kind, items in batches.items()])

    async def _queue(
        self, queue: QueueRef, reason: Reason, call: NamedCall | None, items: BatchItems, answers: Answers
    ) -> None:
        """Queue messages of one queue, an operation per partition."""
        partitions: dict[str | None, BatchItems] = defaultdict(list)
        for entry in items:
            partitions[entry[1].message.key].append(entry)
        operations = [self._operation(queue, key, part, call) for key, part in partitions.items()]
        try:
            tickets = await self._overflow.add(operations, reason=reason, must=call is not None)
        except WeirError as error:
            tickets = [error] * len(operations)
        refused: BatchItems = []
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
        self, queue: QueueRef, call: NamedCall, refused: BatchItems, answers: Answers
    ) -> None:
        """Answer for messages that could not be queued after a direct attempt of unknown outcome. By now the
        broker may say what the attempt did. Messages that it did not put in never come."""
        told = await ask_call(self._broker, queue, call)
        if not isinstance(told, WeirError):
            answers |= done_answers(told, refused)

    def _operation(
        self, queue: QueueRef, key: str | None, part: BatchItems, call: NamedCall | None
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
            message_ids=(min(one.id for one in push.messages), max(one.id for one in push.messages)),
            call_slot=None if call is None else call.slot,
        )


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
