"""The direct attempt: put messages in now, and say why each of the others must be queued.

Nothing here waits for PostgreSQL, so a request that must be queued does not hold up others in its call.

Many small requests make few broker calls: everything that arrives while calls run goes out together in the
next one. A request goes at once while fewer than `CALLS_AT_ONCE` calls run, so it never waits only to share
a call. Holders take turns, so that a holder that sends much does not hold up a holder that sends little. Each
item gets its own answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from weir.broker.broker import Broker, CallAnswer, GateRule
from weir.errors import BrokerUnavailable, CallStale, InvalidInput, KeyReused, Unavailable, WeirError
from weir.exchange.seam import (
    PushAnswer,
    Pushed,
    Pusher,
    PushItem,
    Refused,
    SettleAnswer,
    SettleItem,
    Settler,
)
from weir.model.asyncio_tasks import in_turns
from weir.model.holders import HOLDER, Holder
from weir.model.ids import CallSlots, NamedCall
from weir.model.message import Enqueue, Enqueued, NewMessage, key_reused
from weir.model.names import QueueRef
from weir.operations.gates import BROKER_ANSWER_S, Reach, is_unknown, no_answer
from weir.operations.model import Reason, queue_full

Item = TypeVar("Item")
Answer = TypeVar("Answer")
CALLS_AT_ONCE = 2
SHARED = 250
"""Items of a shared call at most. So many share the cost of a call well enough, and a larger call would hold
up the event loop."""


Answers = dict[int, PushAnswer]
"""Answers by the places of their items in the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Refused):
    """Not executed, or nobody knows whether it was: queue the message, or else refuse it."""

    reason: Reason
    call: NamedCall | None = None
    """The call of unknown outcome that it was part of."""
    place: int = 0
    """Where it stood in that call."""


class DirectPusher:
    """Puts every message into its queue now: one broker call per queue, order kept."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        first, named = items[0].queue, items[0].named
        if named is not None or all(item.queue is first for item in items):
            return await self.push_to(first, [item.message for item in items], named=named)
        groups: dict[QueueRef, list[int]] = {}
        for at, item in enumerate(items):
            groups.setdefault(item.queue, []).append(at)
        answers: Answers = {}
        await in_turns([self._push_group(queue, items, group, answers) for queue, group in groups.items()])
        return [answers[at] for at in range(len(items))]

    async def _push_group(
        self, queue: QueueRef, items: Sequence[PushItem], group: list[int], answers: Answers
    ) -> None:
        done = await self.push_to(queue, [items[at].message for at in group])
        answers.update(zip(group, done, strict=True))

    async def push_to(
        self, queue: QueueRef, messages: list[NewMessage], *, named: NamedCall | None = None
    ) -> list[PushAnswer]:
        try:
            enqueued = await self._broker.enqueue(queue, messages, entry=named or GateRule.OBEY)
        except WeirError as error:
            return [Refused(error=error)] * len(messages)
        return [push_answer(queue, one) for one in enqueued]


class DirectAttempt(DirectPusher):
    """Executes items at once where it may; the others come back as `Held`, to be queued.

    Each call has a name, so that a call of unknown outcome can be asked about and cannot take effect twice.
    """

    def __init__(
        self, *, broker: Broker, reach: Reach, calls: CallSlots, timeout_s: float = BROKER_ANSWER_S
    ) -> None:
        super().__init__(broker)
        self._reach = reach
        self._calls = calls
        self._timeout_s = timeout_s

    async def push_to(
        self, queue: QueueRef, messages: list[NewMessage], *, named: NamedCall | None = None
    ) -> list[PushAnswer]:
        shard = self._reach.shard(queue)
        if shard in self._reach.lost:
            return _unreached(len(messages), named)
        call = named or self._calls.take()
        try:
            enqueued = await self._enqueue(queue, messages, call)
        except WeirError as error:
            if is_unknown(error):
                self._reach.lose(shard)
                return [_unknown(error, call, place) for place in range(len(messages))]
            if not isinstance(error, CallStale):
                self._end(call, named)
            return [Refused(error=error)] * len(messages)
        self._end(call, named)
        return [_GATED if one.outcome is Enqueue.GATED else push_answer(queue, one) for one in enqueued]

    def _end(self, call: NamedCall, named: NamedCall | None) -> None:
        if named is None:
            self._calls.give_back(call)

    async def _enqueue(self, queue: QueueRef, messages: list[NewMessage], call: NamedCall) -> list[Enqueued]:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._broker.enqueue(queue, messages, entry=call)
        except TimeoutError:
            raise no_answer() from None


_GATED = Held(
    error=Unavailable("operations are queued ahead of this one; try again", retry_after_s=1),
    reason=Reason.MAINTAINING_ORDER,
)
_UNREACHED = Held(
    error=BrokerUnavailable("the broker is out of reach; try again", retry_after_s=1),
    reason=Reason.BROKER_UNAVAILABLE,
)


def _unreached(count: int, named: NamedCall | None) -> list[PushAnswer]:
    """The broker was not asked now. But a producer that names its call may have made it before."""
    if named is None:
        return [_UNREACHED] * count
    return [_unknown(_UNREACHED.error, named, place) for place in range(count)]


def _unknown(error: WeirError, call: NamedCall, place: int) -> Held:
    return Held(error=error, reason=Reason.BROKER_UNAVAILABLE, call=call, place=place)


def push_answer(queue: QueueRef, enqueued: Enqueued) -> PushAnswer:
    """What the broker did with one message, in the words of the seam."""
    match enqueued.outcome:
        case Enqueue.ACCEPTED:
            return Pushed(message_id=enqueued.message_id)
        case Enqueue.DUPLICATE:
            return Pushed(message_id=enqueued.message_id, duplicate=True)
        case Enqueue.KEY_REUSED:
            return Refused(error=key_reused())
        case Enqueue.FULL:
            return Refused(error=queue_full(queue))
        case Enqueue.GATED:
            text = f"operations of `{queue.queue}` are queued ahead of this one; try again"
            return Refused(error=Unavailable(text, retry_after_s=1))


async def ask_call(
    broker: Broker, queue: QueueRef, call: NamedCall, *, timeout_s: float = BROKER_ANSWER_S
) -> list[CallAnswer] | WeirError:
    """Ask what a call did; from now on it does nothing. The error if the broker does not tell."""
    try:
        async with asyncio.timeout(timeout_s):
            return await broker.settle_call(queue, call)
    except TimeoutError:
        return no_answer()
    except WeirError as error:
        return error


def done_answers(told: Sequence[CallAnswer], items: Iterable[tuple[int, PushItem, int]]) -> Answers:
    """Answers for the items for which a call left nothing to do: each has its place in the request and its
    place in the call."""
    return {
        at: _told_answer(item, told[place])
        for at, item, place in items
        if place < len(told) and told[place].is_done
    }


def _told_answer(item: PushItem, told: CallAnswer) -> PushAnswer:
    """What a named call did with one message, as the broker told it."""
    return push_answer(
        item.queue, Enqueued(outcome=told.outcome, message_id=told.original_id or item.message.id)
    )


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[Item, Answer]):
    items: Sequence[Item]
    answered: asyncio.Future[list[Answer]]


class RequestCoalescer(Generic[Item, Answer]):
    """Runs at most `at_once` shared calls, each with everything that waits."""

    def __init__(
        self, execute: Callable[[Sequence[Item]], Awaitable[list[Answer]]], *, at_once: int = CALLS_AT_ONCE
    ) -> None:
        self._execute = execute
        self._free = at_once
        self._waiting: dict[Holder, deque[_Waiting[Item, Answer]]] = {}
        """Waiting requests by holder; the holder whose turn is next comes first."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, items: Sequence[Item]) -> list[Answer]:
        """The answers to these items, whichever call carried them.

        A request that fills a call by itself makes its own call, so that small requests do not wait for it.
        """
        if len(items) >= SHARED:
            return await self._execute(items)
        if not self._free:
            one: _Waiting[Item, Answer] = _Waiting(items, asyncio.get_running_loop().create_future())
            self._waiting.setdefault(HOLDER.get(), deque()).append(one)
            return await one.answered
        self._free -= 1
        try:
            return await self._execute(items)
        finally:
            self._release()

    def _release(self) -> None:
        """Start the next call, if anyone waits for it."""
        group = self._next_group()
        if not group:
            self._free += 1
            return
        task = asyncio.create_task(self._carry(group))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _next_group(self) -> list[_Waiting[Item, Answer]]:
        """The requests for one call: one per holder in turn, and each holder's in order of arrival."""
        group: list[_Waiting[Item, Answer]] = []
        size = 0
        while self._waiting:
            holder, own = next(iter(self._waiting.items()))
            if group and size + len(own[0].items) > SHARED:
                return group
            del self._waiting[holder]
            one = own.popleft()
            if own:
                self._waiting[holder] = own
            if not one.answered.done():
                group.append(one)
                size += len(one.items)
        return group

    async def _carry(self, group: list[_Waiting[Item, Answer]]) -> None:
        try:
            items = [item for one in group for item in one.items]
            answers = await self._execute(items)
        except BaseException as error:
            for one in group:
                if not one.answered.done():
                    one.answered.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            at = 0
            for one in group:
                if not one.answered.done():
                    one.answered.set_result(answers[at : at + len(one.items)])
                at += len(one.items)
        finally:
            self._release()


class CoalescingPusher:
    """A `Pusher` that shares calls among requests."""

    def __init__(self, inner: Pusher, *, at_once: int = CALLS_AT_ONCE) -> None:
        self._inner = inner
        self._coalescer: RequestCoalescer[PushItem, PushAnswer] = RequestCoalescer(
            inner.push, at_once=at_once
        )

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        if items[0].named is not None:
            # The name of the call is for these messages only, so others cannot share it.
            return await self._inner.push(items)
        answers = await self._coalescer.submit(items)
        spoiled = [at for at, answer in enumerate(answers) if _spoiled(answer)]
        if not spoiled:
            return answers
        # A call with bad input changes nothing. These items go once more, without items of other requests, to
        # find whose input it was.
        alone = await self._inner.push([items[at] for at in spoiled])
        repaired = list(answers)
        for at, answer in zip(spoiled, alone, strict=True):
            repaired[at] = answer
        return repaired


class CoalescingSettler:
    """A `Settler` that shares calls among requests."""

    def __init__(self, inner: Settler, *, at_once: int = CALLS_AT_ONCE) -> None:
        self._coalescer: RequestCoalescer[SettleItem, SettleAnswer] = RequestCoalescer(
            inner.settle, at_once=at_once
        )

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleAnswer]:
        return await self._coalescer.submit(items)


def _spoiled(answer: PushAnswer) -> bool:
    """Refused for input that may be another request's."""
    return (
        isinstance(answer, Refused)
        and isinstance(answer.error, InvalidInput)
        and not isinstance(answer.error, KeyReused)
    )
