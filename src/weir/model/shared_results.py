"""Results that are shared by everybody who asks at about the same time: made once, and kept for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Making(Generic[T]):
    task: asyncio.Task[T]
    ended_s: float | None = None


class SharedResults(Generic[T]):
    """Makes at most one result per key and `keep_s`, however many ask for it. Errors are not kept."""

    def __init__(self) -> None:
        self._made: dict[Hashable, _Making[T]] = {}

    async def get(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]], *, keep_s: float) -> T:
        """The result of this key, made now unless it is being made or was made in the last `keep_s`."""
        self._drop_older(keep_s)
        making = self._made.get(key)
        if making is None:
            making = self._made[key] = _Making(asyncio.create_task(make()))
            making.task.add_done_callback(lambda task: self._note_end(key, task))
        return await asyncio.shield(making.task)

    def _note_end(self, key: Hashable, task: asyncio.Task[T]) -> None:
        if task.cancelled() or task.exception() is not None:
            del self._made[key]
        else:
            self._made[key].ended_s = time.monotonic()

    def _drop_older(self, keep_s: float) -> None:
        oldest_s = time.monotonic() - keep_s
        for key, making in list(self._made.items()):
            if making.ended_s is not None and making.ended_s <= oldest_s:
                del self._made[key]
