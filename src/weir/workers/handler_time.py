"""The time that a handler may take. It stands still while a process is started for the handler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from weir.model.durations import SECOND_MS

T = TypeVar("T")


class HandlerTime:
    """Ends an attempt when its time is up. It counts from when this object is made."""

    __slots__ = ("_standing", "_timeout", "_up_at")

    def __init__(self, timeout_ms: int) -> None:
        self._up_at = asyncio.get_running_loop().time() + timeout_ms / SECOND_MS
        self._standing = False
        self._timeout: asyncio.Timeout | None = None

    async def bound(self, action: Awaitable[T]) -> T:
        """Wait for the action; returns its result. When the time is up, cancel it and raise TimeoutError."""
        # The action may have taken its first step already, and may start a process at this moment.
        async with asyncio.timeout_at(None if self._standing else self._up_at) as self._timeout:
            return await action

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Let the time stand still while the block runs. The block needs a time limit of its own."""
        clock = asyncio.get_running_loop().time
        began = clock()
        self._standing = True
        self._move(None)
        try:
            yield
        finally:
            self._up_at += clock() - began
            self._standing = False
            self._move(self._up_at)

    def _move(self, when: float | None) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(when)


_CURRENT: ContextVar[HandlerTime | None] = ContextVar("handler_time", default=None)


def begin_handler_time(timeout_ms: int | None) -> HandlerTime | None:
    """Begin the time of an attempt, which code that the attempt calls can find; None if it has no limit."""
    made = None if timeout_ms is None else HandlerTime(timeout_ms)
    _CURRENT.set(made)
    return made


@contextmanager
def handler_time_standing() -> Iterator[None]:
    """Let the time of the current attempt stand still, if it has one."""
    current = _CURRENT.get()
    if current is None:
        yield
        return
    with current.standing():
        yield
