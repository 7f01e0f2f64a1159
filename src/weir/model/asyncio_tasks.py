"""Cancels and awaits asyncio tasks reliably, and runs the parts of one request at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

# A task that swallowed its cancellation goes on; it is cancelled again after this time.
AGAIN_S = 2.0
# Parts of one request that run at the same time. A thousand would hold the event loop for a tenth of a
# second, and reach their deadlines before they are sent. With 32 the connections are just as busy.
AT_ONCE = 32
_T = TypeVar("_T")


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until all have ended, whatever they end with."""
    # A driver may swallow a cancellation that reaches it at the wrong moment (redis-py does, about once in
    # ten), so tasks that go on are cancelled again.
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()


async def run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Run bounded work to its end even if the caller is cancelled; the cancellation is raised after it."""
    task = asyncio.create_task(work)
    interrupted = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            interrupted = True
        except Exception:
            break
    task.result()
    if interrupted:
        raise asyncio.CancelledError


async def all_of(parts: list[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The answers of all parts, which run at the same time."""
    # Hot paths nearly always have one part, and that needs no task of its own.
    if len(parts) == 1:
        return [await parts[0]]
    return await asyncio.gather(*parts)


async def in_turns(parts: list[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The answers of all parts, `AT_ONCE` at the same time; for parts that have deadlines of their own."""
    if len(parts) <= AT_ONCE:
        return await all_of(parts)
    answers: dict[int, _T] = {}
    left = iter(enumerate(parts))

    async def work() -> None:
        for at, part in left:
            answers[at] = await part

    try:
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    finally:
        # Parts that never ran are closed, or Python would warn that they were not awaited.
        for _, part in left:
            part.close()
    return [answers[at] for at in range(len(parts))]
