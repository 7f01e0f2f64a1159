"""Many small requests, few broker calls: what arrives while a call runs goes out together in the next one.

Holders take turns in it, so that one who sends much does not hold up one who sends little.

A request goes at once while fewer than `CALLS_AT_ONCE` calls run: nothing waits for company. Under load
that many run, and everything that gathered meanwhile shares the broker's cost of the next call.
Answers stay per item.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from weir.errors import InvalidInput, KeyReused
from weir.exchange.seam import PushAnswer, Pusher, PushItem, Refused, SettleAnswer, SettleItem, Settler
from weir.model.holders import HOLDER, Holder

Item = TypeVar("Item")
Answer = TypeVar("Answer")
CALLS_AT_ONCE = 2
SHARED = 250
"""Items of a shared call. The cost of a call is spread by then, and the event loop is not held up by a larger
one."""


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
        """Those who wait, by holder; the holder whose turn is next stands first."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, items: Sequence[Item]) -> list[Answer]:
        """The answers to these items, whichever call carried them.

        A request that fills a call by itself has nothing to share, and would make small ones wait.
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
        """What fits into one call: one request of each holder in turn, each holder's in order of arrival."""
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
        answers = await self._coalescer.submit(items)
        spoiled = [at for at, answer in enumerate(answers) if _spoiled(answer)]
        if not spoiled:
            return answers
        # A call with bad input changes nothing. Each item goes once more alone, to find whose input it was.
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
