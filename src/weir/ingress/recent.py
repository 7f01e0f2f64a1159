"""Lets requests with the same sender's id share one answer while the first of them is answered.

For 24 hours and across processes, the broker recognises repeats: it knows every sender's id and returns the
id of the first message. So an answer is kept here only if the broker cannot know it yet.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from weir.errors import KeyReused, Unavailable
from weir.model.names import EnvironmentRef

A = TypeVar("A")
EventKey = tuple[EnvironmentRef, str, str]
"""Environment, webhook and sender's id, so that tenants never share an answer."""


@dataclass(slots=True)
class _Seen(Generic[A]):
    digest: bytes
    future: asyncio.Future[A]


class RecentAnswers(Generic[A]):
    """Runs the first request with an id; requests that repeat it share its answer."""

    def __init__(self, *, keep: Callable[[A], bool], capacity: int = 20_000) -> None:
        self._keep = keep
        self._capacity = capacity
        self._seen: OrderedDict[EventKey, _Seen[A]] = OrderedDict()

    async def run_once(
        self, key: EventKey, *, digest: bytes, first: Callable[[], Awaitable[A]]
    ) -> tuple[A, bool]:
        """The answer, and whether it is a repeat; raises `KeyReused` if the id came with another body."""
        seen = self._seen.get(key)
        if seen is not None:
            if seen.digest != digest:
                raise reused()
            return await asyncio.shield(seen.future), True
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._remember(key, _Seen(digest, future))
        try:
            answer = await first()
        except BaseException as error:
            # A failure is not kept, because a retry may succeed.
            self._seen.pop(key, None)
            if not future.done():
                future.set_exception(error if isinstance(error, Exception) else _interrupted())
                future.exception()
            raise
        future.set_result(answer)
        if not self._keep(answer):
            self._seen.pop(key, None)
        return answer, False

    def _remember(self, key: EventKey, seen: _Seen[A]) -> None:
        self._seen[key] = seen
        if len(self._seen) > self._capacity:
            self._seen.popitem(last=False)


def _interrupted() -> Unavailable:
    return Unavailable("the first request with this id was interrupted; send it again", retry_after_s=1)


def reused() -> KeyReused:
    return KeyReused("this id came with another body before; a retry must repeat the request as it was")
