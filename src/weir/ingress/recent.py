"""Requests under way, by sender's id: those that repeat one share its answer, word for word.

The promise for 24 hours and across processes is the store's: it knows every id and gives the first
message's. So an answer is remembered here only if the store cannot know it yet.
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
Place = tuple[EnvironmentRef, str, str]
"""Environment, webhook and sender's id: no tenant ever meets another's."""


@dataclass(slots=True)
class _Seen(Generic[A]):
    digest: bytes
    future: asyncio.Future[A]


class Recent(Generic[A]):
    """Runs the first request of an id; those that repeat it share its answer."""

    def __init__(self, *, keep: Callable[[A], bool], capacity: int = 20_000) -> None:
        self._keep = keep
        self._capacity = capacity
        self._seen: OrderedDict[Place, _Seen[A]] = OrderedDict()

    async def once(self, place: Place, *, digest: bytes, first: Callable[[], Awaitable[A]]) -> tuple[A, bool]:
        """The answer, and whether it is a repeat. KeyReused if the id came with another body before."""
        seen = self._seen.get(place)
        if seen is not None:
            if seen.digest != digest:
                raise reused()
            return await asyncio.shield(seen.future), True
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._remember(place, _Seen(digest, future))
        try:
            answer = await first()
        except BaseException as error:
            self._seen.pop(place, None)
            if not future.done():
                future.set_exception(error if isinstance(error, Exception) else _interrupted())
                future.exception()
            raise
        future.set_result(answer)
        if not self._keep(answer):
            self._seen.pop(place, None)
        return answer, False

    def _remember(self, place: Place, seen: _Seen[A]) -> None:
        self._seen[place] = seen
        if len(self._seen) > self._capacity:
            self._seen.popitem(last=False)


def _interrupted() -> Unavailable:
    return Unavailable("the first request with this id was interrupted; send it again", retry_after_s=1)


def reused() -> KeyReused:
    return KeyReused("this id came with another body before; a retry must repeat the request as it was")
