"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

AGAIN_S = 2.0
AT_ONCE = 32
"""Parts of one request that run at the same time. A thousand at once would hold the event loop for a tenth of
a second and reach their deadlines before they are sent; with 32 the connections are as busy."""
_T = TypeVar("_T")


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until all have ended, whatever they end with.

    A driver may swallow a cancellation that reaches it at the wrong moment (redis-py does, about once in
    ten); so those that go on are cancelled again.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()


async def run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Run bounded work to its end, however often the caller is cancelled meanwhile; that is raised then."""
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
    """The answers of all, run at once. One part is the rule on hot paths, and needs no task of its own."""
    if len(parts) == 1:
        return [await parts[0]]
    return await asyncio.gather(*parts)


async def in_turns(parts: list[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The answers of all, of which `AT_ONCE` run at the same time: for parts with deadlines of their own."""
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
        for _, part in left:
            part.close()
    return [answers[at] for at in range(len(parts))]
