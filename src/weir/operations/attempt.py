"""The direct attempt: put messages in now, and say of each that could not be why it must be queued.

Nothing waits here for PostgreSQL, so requests may share calls without one that queues holding up the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weir.broker.broker import Broker, NamedCall
from weir.errors import BrokerUnavailable, Unavailable, WeirError
from weir.model.asyncio_tasks import in_turns
from weir.model.exchange import PushAnswer, PushItem, Refused, push_answer
from weir.model.message import Enqueue, Enqueued, NewMessage
from weir.model.names import QueueRef
from weir.operations.calls import CallSlots
from weir.operations.model import Reason
from weir.operations.reach import BROKER_ANSWER_S, Reach

Answers = dict[int, PushAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Refused):
    """Not executed, or nobody knows: it must be queued, or its producer be refused."""

    reason: Reason
    call: NamedCall | None = None
    """The call of unknown outcome that it was part of."""
    place: int = 0
    """Where it stood in that call."""


class DirectAttempt:
    """A `Pusher` that executes at once what may be; the rest comes back as `Held`."""

    def __init__(
        self,
        *,
        broker: Broker,
        shard: Callable[[QueueRef], int],
        reach: Reach,
        calls: CallSlots,
        timeout_s: float = BROKER_ANSWER_S,
    ) -> None:
        self._broker = broker
        self._shard = shard
        self._reach = reach
        self._calls = calls
        self._timeout_s = timeout_s

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        first = items[0].queue
        if all(item.queue is first for item in items):
            return await self._one_queue(first, [item.message for item in items])
        groups: dict[QueueRef, list[int]] = {}
        for at, item in enumerate(items):
            groups.setdefault(item.queue, []).append(at)
        answers: Answers = {}
        await in_turns([self._group(queue, items, group, answers) for queue, group in groups.items()])
        return [answers[at] for at in range(len(items))]

    async def _group(
        self, queue: QueueRef, items: Sequence[PushItem], group: list[int], answers: Answers
    ) -> None:
        done = await self._one_queue(queue, [items[at].message for at in group])
        answers.update(zip(group, done, strict=True))

    async def _one_queue(self, queue: QueueRef, messages: list[NewMessage]) -> list[PushAnswer]:
        if not self._reach.reachable(self._shard(queue)):
            return [_UNREACHED] * len(messages)
        call = self._calls.take()
        try:
            enqueued = await self._enqueue(queue, messages, call)
        except WeirError as error:
            if is_unknown(error):
                self._reach.lost(self._shard(queue))
                return [_unknown(error, call, place) for place in range(len(messages))]
            self._calls.give_back(call)
            return [Refused(error=error)] * len(messages)
        self._calls.give_back(call)
        return [_GATED if one.outcome is Enqueue.GATED else push_answer(queue, one) for one in enqueued]

    async def _enqueue(self, queue: QueueRef, messages: list[NewMessage], call: NamedCall) -> list[Enqueued]:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._broker.enqueue(queue, messages, call=call)
        except TimeoutError:
            raise BrokerUnavailable("the broker did not answer in time; try again") from None


_GATED = Held(
    error=Unavailable("operations are queued ahead of this one; try again", retry_after_s=1),
    reason=Reason.MAINTAINING_ORDER,
)
_UNREACHED = Held(
    error=BrokerUnavailable("the broker is out of reach; try again", retry_after_s=1),
    reason=Reason.BROKER_UNAVAILABLE,
)


def _unknown(error: WeirError, call: NamedCall, place: int) -> Held:
    return Held(error=error, reason=Reason.BROKER_UNAVAILABLE, call=call, place=place)


def is_unknown(error: WeirError) -> bool:
    """Whether the broker may or may not have done it; a store that answered 'no room' has not."""
    return isinstance(error, BrokerUnavailable) and not error.extra.get("refused")
