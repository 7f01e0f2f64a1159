"""The direct attempt: put messages in now, and say of each that could not be why it must be queued.

Nothing waits here for PostgreSQL, so requests may share calls without one that queues holding up the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from weir.broker.broker import Broker, NamedCall
from weir.errors import BrokerUnavailable, Unavailable, WeirError
from weir.exchange.seam import PushAnswer, PushItem, Refused, push_answer
from weir.model.asyncio_tasks import in_turns
from weir.model.ids import new_id
from weir.model.message import Enqueue, Enqueued, NewMessage
from weir.model.names import QueueRef
from weir.operations.gates import BROKER_ANSWER_S, Reach, is_unknown
from weir.operations.model import Reason

Answers = dict[int, PushAnswer]
"""Answers by the places of their items in the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Refused):
    """Not executed, or nobody knows: it must be queued, or its producer be refused."""

    reason: Reason
    call: NamedCall | None = None
    """The call of unknown outcome that it was part of."""
    place: int = 0
    """Where it stood in that call."""


class CallSlots:
    """Names calls. Each slot carries one call at a time, so the broker need remember only its last.

    The calls of a slot are numbered: bytes of an earlier one, sent twice, may arrive behind a later one. A
    slot whose call had an unknown outcome is never given back: the call may still take effect.
    """

    def __init__(self, process: str | None = None) -> None:
        self._process = process or new_id()
        self._free: list[NamedCall] = []
        """The last call of each slot that is free."""
        self._made = 0

    def take(self) -> NamedCall:
        """A fresh call in a slot that no other call uses meanwhile."""
        if self._free:
            last = self._free.pop()
            return NamedCall(slot=last.slot, id=str(int(last.id) + 1))
        self._made += 1
        return NamedCall(slot=f"{self._process}/{self._made}", id="1")

    def give_back(self, call: NamedCall) -> None:
        """The outcome of the call is known."""
        self._free.append(call)


class DirectPusher:
    """Puts every message into its queue now: one broker call per queue, order kept."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        first = items[0].queue
        if all(item.queue is first for item in items):
            return await self._push_to(first, [item.message for item in items])
        groups: dict[QueueRef, list[int]] = {}
        for at, item in enumerate(items):
            groups.setdefault(item.queue, []).append(at)
        answers: Answers = {}
        await in_turns([self._push_group(queue, items, group, answers) for queue, group in groups.items()])
        return [answers[at] for at in range(len(items))]

    async def _push_group(
        self, queue: QueueRef, items: Sequence[PushItem], group: list[int], answers: Answers
    ) -> None:
        done = await self._push_to(queue, [items[at].message for at in group])
        answers.update(zip(group, done, strict=True))

    async def _push_to(self, queue: QueueRef, messages: list[NewMessage]) -> list[PushAnswer]:
        try:
            enqueued = await self._broker.enqueue(queue, messages)
        except WeirError as error:
            return [Refused(error=error)] * len(messages)
        return [push_answer(queue, one) for one in enqueued]


class DirectAttempt(DirectPusher):
    """Executes at once what may be; the rest comes back as `Held`, to be queued.

    Each call has a name, so that one of unknown outcome can be asked about and cannot take effect twice.
    """

    def __init__(
        self, *, broker: Broker, reach: Reach, calls: CallSlots, timeout_s: float = BROKER_ANSWER_S
    ) -> None:
        super().__init__(broker)
        self._reach = reach
        self._calls = calls
        self._timeout_s = timeout_s

    async def _push_to(self, queue: QueueRef, messages: list[NewMessage]) -> list[PushAnswer]:
        shard = self._reach.shard(queue)
        if not self._reach.reachable(shard):
            return [_UNREACHED] * len(messages)
        call = self._calls.take()
        try:
            enqueued = await self._enqueue(queue, messages, call)
        except WeirError as error:
            if is_unknown(error):
                self._reach.lose(shard)
                return [_unknown(error, call, place) for place in range(len(messages))]
            self._calls.give_back(call)
            return [Refused(error=error)] * len(messages)
        self._calls.give_back(call)
        return [_GATED if one.outcome is Enqueue.GATED else push_answer(queue, one) for one in enqueued]

    async def _enqueue(self, queue: QueueRef, messages: list[NewMessage], call: NamedCall) -> list[Enqueued]:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._broker.enqueue(queue, messages, entry=call)
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
