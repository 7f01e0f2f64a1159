"""Blocking calls beside the event loop, in threads of their own: nobody waits longer than was said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_MEMORY_S = 1.0
"""How long a wait in vain is remembered."""


class BoundedThreads:
    """A few threads for calls that may hang. TimeoutError after `patience_s`, the wait for a thread included.

    A thread cannot be ended from outside: the call goes on until its own time-out, and its thread is taken
    until then. After a wait in vain the others fail fast for a second: they wait a quarter as long.
    """

    def __init__(self, count: int, *, patience_s: float, name: str) -> None:
        self._patience_s = patience_s
        self._free = asyncio.Semaphore(count)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._in_vain_until = 0.0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns."""
        short = time.monotonic() < self._in_vain_until
        try:
            async with asyncio.timeout(self._patience_s / 4 if short else self._patience_s):
                await self._free.acquire()
                working = asyncio.wrap_future(self._threads.submit(work, *args, **kwargs))
                working.add_done_callback(self._ended)
                return await asyncio.shield(working)
        except TimeoutError:
            self._in_vain_until = time.monotonic() + _MEMORY_S
            raise TimeoutError(f"no answer within {self._patience_s:g} s") from None

    def _ended(self, working: asyncio.Future[T]) -> None:
        self._free.release()
        if not working.cancelled():
            # Whoever asked may have left; then the error is nobody's.
            working.exception()

    async def aclose(self) -> None:
        """Wait until no call is under way."""
        await asyncio.to_thread(self._threads.shutdown)
