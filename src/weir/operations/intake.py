"""Where pushes come in: executed at once, queued behind what is queued, or turned away.

Queueing closes the gate of the partition in the broker first, then writes to PostgreSQL, then answers;
from then on every direct enqueue of that partition, in any process, is GATED and queues behind. With the
broker out of reach the gate stays open and the operation says so; the keeper's lease makes that safe.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from weir.admission.kinds import OperationType
from weir.broker.broker import Broker, Call
from weir.errors import BrokerUnavailable, Overloaded, WeirError
from weir.model.exchange import PushAnswer, PushItem, Queued, Refused, push_answer
from weir.model.message import Enqueue, Enqueued, NewMessage
from weir.model.names import QueueRef
from weir.operations.calls import CallLanes
from weir.operations.model import NewOperation, Reason, lane_of
from weir.operations.overflow import Overflow
from weir.operations.payload import Push, encode_push
from weir.operations.reach import Reach

DIRECT_TIMEOUT_S = 0.75
"""After this long without an answer a direct push is queued; whether it took effect is found out later."""

Answers = dict[int, PushAnswer]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A message on its way: its place in the request, and in a call of unknown outcome."""

    at: int
    message: NewMessage
    place: int = 0


class Intake:
    """A `Pusher` that keeps order, one for each process; everything that a producer pushes ends here."""

    def __init__(
        self,
        *,
        broker: Broker,
        overflow: Overflow,
        reach: Reach,
        calls: CallLanes,
        timeout_s: float = DIRECT_TIMEOUT_S,
    ) -> None:
        self._broker = broker
        self._overflow = overflow
        self._reach = reach
        self._calls = calls
        self._timeout_s = timeout_s

    async def push(self, items: Sequence[PushItem], *, producer: str = "") -> list[PushAnswer]:
        """Execute at once what may be, queue the rest."""
        answers: Answers = {}
        await _all([self._one_queue(*group, answers) for group in _by_queue(items).items()])
        return [answers[at] for at in range(len(items))]

    async def queue(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        """Queue everything, because this process is busy."""
        answers: Answers = {}
        groups = _by_queue(items).items()
        await _all([self._queue(*group, answers, reason=Reason.SYSTEM_BUSY) for group in groups])
        return [answers[at] for at in range(len(items))]

    def overloaded(self) -> Overloaded:
        """The refusal, with when to come back."""
        return self._overflow.overloaded()

    async def _one_queue(self, queue: QueueRef, entries: list[_Entry], answers: Answers) -> None:
        if not self._reach.reachable(self._overflow.shard(queue)):
            await self._queue(queue, entries, answers, reason=Reason.BROKER_UNAVAILABLE)
        else:
            await self._execute(queue, entries, answers)

    async def _execute(self, queue: QueueRef, entries: list[_Entry], answers: Answers) -> None:
        call = self._calls.take()
        try:
            enqueued = await self._enqueue(queue, entries, call)
        except WeirError as error:
            if is_unknown(error):
                self._reach.lost(self._overflow.shard(queue))
                placed = [_Entry(entry.at, entry.message, n) for n, entry in enumerate(entries)]
                await self._queue(queue, placed, answers, reason=Reason.BROKER_UNAVAILABLE, call=call)
                return
            self._calls.give_back(call)
            answers.update((entry.at, Refused(error=error)) for entry in entries)
            return
        self._calls.give_back(call)
        gated: list[_Entry] = []
        for entry, one in zip(entries, enqueued, strict=True):
            if one.outcome is Enqueue.GATED:
                gated.append(entry)
            else:
                answers[entry.at] = push_answer(queue, one)
        if gated:
            await self._queue(queue, gated, answers, reason=Reason.MAINTAINING_ORDER)

    async def _enqueue(self, queue: QueueRef, entries: list[_Entry], call: Call) -> list[Enqueued]:
        messages = [entry.message for entry in entries]
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._broker.enqueue(queue, messages, call=call)
        except TimeoutError:
            raise BrokerUnavailable("the broker did not answer in time; try again") from None

    async def _queue(
        self,
        queue: QueueRef,
        entries: list[_Entry],
        answers: Answers,
        *,
        reason: Reason,
        call: Call | None = None,
    ) -> None:
        """Queue messages of one queue, an operation a partition."""
        partitions: dict[str | None, list[_Entry]] = defaultdict(list)
        for entry in entries:
            partitions[entry.message.key].append(entry)
        operations = [self._operation(queue, key, group, call) for key, group in partitions.items()]
        try:
            tickets = await self._overflow.add(queue, operations, reason=reason)
        except WeirError as error:
            answers.update((entry.at, Refused(error=error)) for entry in entries)
            return
        for ticket, group in zip(tickets, partitions.values(), strict=True):
            for entry in group:
                answers[entry.at] = Queued(
                    operation_id=ticket.operation_id,
                    position=ticket.position,
                    estimated_wait_ms=ticket.estimated_wait_ms,
                    reason=ticket.reason.value,
                    message_id=entry.message.id,
                )

    def _operation(
        self, queue: QueueRef, key: str | None, group: list[_Entry], call: Call | None
    ) -> NewOperation:
        push = Push(
            messages=tuple(entry.message for entry in group),
            call=call,
            places=tuple(entry.place for entry in group) if call else (),
        )
        return NewOperation(
            queue=queue,
            key=key,
            type=OperationType.PUSH,
            lane=lane_of(queue, key),
            shard=self._overflow.shard(queue),
            payload=encode_push(push),
            messages=len(group),
        )


async def _all(groups: list[Coroutine[Any, Any, None]]) -> None:
    """One group is the rule, and needs no task of its own."""
    if len(groups) == 1:
        await groups[0]
    else:
        await asyncio.gather(*groups)


def is_unknown(error: WeirError) -> bool:
    """Whether the broker may or may not have done it; a store that answered 'no room' has not."""
    return isinstance(error, BrokerUnavailable) and not error.extra.get("refused")


def _by_queue(items: Sequence[PushItem]) -> dict[QueueRef, list[_Entry]]:
    groups: dict[QueueRef, list[_Entry]] = {}
    for at, item in enumerate(items):
        groups.setdefault(item.queue, []).append(_Entry(at, item.message))
    return groups
