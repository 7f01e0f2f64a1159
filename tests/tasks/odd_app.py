"""Tasks that end in every odd way, for every kind of worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from weir import App, Retry, TaskContext

app = App(name="odd", queue="odd")


class Odd(BaseException):
    """Neither an `Exception` nor one that Python knows."""


class Unpicklable(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def _raise(error: BaseException) -> Any:
    raise error


DEADLY: dict[str, Callable[[], Any]] = {
    "StopIteration": lambda: _raise(StopIteration("at the end")),
    "GeneratorExit": lambda: _raise(GeneratorExit("closed")),
    "CancelledError": lambda: _raise(asyncio.CancelledError("by itself")),
    "Odd": lambda: _raise(Odd("very")),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt("by itself")),
    "SystemExit": lambda: _raise(SystemExit(3)),
    "BaseExceptionGroup": lambda: _raise(BaseExceptionGroup("many", [Odd("one")])),
    "Unpicklable": lambda: _raise(Unpicklable(1, 2)),
    "much later": lambda: _raise(Retry("much later", delay=10 * 365 * 86_400)),
}
"""What a task does, by a word that its error tells. They die of their only attempt."""
DONE: dict[str, Callable[[], Any]] = {
    "a lock": threading.Lock,
    "a generator": lambda: (one for one in (1, 2)),
    "a number of 400 digits": lambda: 10**400,
    "a number of 5000 digits": lambda: 10**5000,
    "an exception that cannot be unpickled": lambda: Unpicklable(1, 2),
    "nothing": lambda: None,
}
"""What a task returns. Its work is done, whatever becomes of the result."""


@app.task(max_attempts=1, timeout=30)
def odd(way: str) -> Any:
    return (DEADLY | DONE)[way]()


@app.task(max_attempts=1, timeout=30)
async def odd_async(way: str) -> Any:
    await asyncio.sleep(0)
    return (DEADLY | DONE)[way]()


@app.task(max_attempts=1, timeout=30, process=True)
def odd_process(way: str) -> Any:
    return (DEADLY | DONE)[way]()


@app.task(max_attempts=1, timeout=30)
async def tell_oddly(context: TaskContext) -> None:
    context.progress(float("nan"))
    await asyncio.sleep(0)
    raise ValueError("after odd progress")


@app.task(queue="short", max_attempts=1, timeout=0.2)
def slow() -> str:
    threading.Event().wait(3)
    return "late"
