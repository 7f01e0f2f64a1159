"""Runs a coroutine inside the current asyncio task, but with context variables of its own.

A slot runs one handler after the other in the same asyncio task. Variables that a handler sets must not be
seen by the next one, as if each had an asyncio task of its own. A coroutine that never waits is finished by
its first step: it needs neither a turn of the event loop nor a timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from weir.workers.threads import own_error

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
        except GeneratorExit as error:
            raise own_error(error) from error

    def __await__(self) -> Generator[Any, Any, T]:
        """Go on from the first wait. The asyncio task gets whatever the coroutine waits for, unchanged."""
        waits_for = self._waits_for
        closed, task = False, _current_task()
        try:
            while True:
                try:
                    woken_with = yield waits_for
                except BaseException as error:
                    # asyncio also throws in what an awaited future raised, but only in a step of the task.
                    closed = isinstance(error, GeneratorExit) and _current_task() is not task
                    waits_for = self._run(self._coroutine.throw, error)
                else:
                    waits_for = self._run(self._coroutine.send, woken_with)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        except GeneratorExit as error:
            if closed:
                raise
            # The coroutine raised it by itself. To asyncio it would be the end of the slot.
            raise own_error(error) from error


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # the loop has ended, and the coroutine is closed
        return None
