"""Runs a coroutine inside the current asyncio task, but with context variables of its own.

A slot runs one handler after the other in the same asyncio task. Variables that a handler sets must not be
seen by the next one, as if each had an asyncio task of its own. A coroutine that never waits is finished by
its first step: it needs neither a turn of the event loop nor a timer.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class OwnContext(Generic[T]):
    """A coroutine that was started. If it is not `finished`, await this object once."""

    __slots__ = ("_coroutine", "_run", "_waits_for", "finished", "result")
    result: T

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        """Run the coroutine to its first wait. An exception that it raises is raised here."""
        self._coroutine = coroutine
        self._run = copy_context().run
        self.finished = False
        try:
            self._waits_for = self._run(coroutine.send, None)
        except StopIteration as stop:
            self.finished, self.result = True, stop.value

    def __await__(self) -> Generator[Any, Any, T]:
        """Go on from the first wait. The asyncio task gets whatever the coroutine waits for, unchanged."""
        waits_for = self._waits_for
        try:
            while True:
                try:
                    woken_with = yield waits_for
                except BaseException as error:
                    waits_for = self._run(self._coroutine.throw, error)
                else:
                    waits_for = self._run(self._coroutine.send, woken_with)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
