"""Runs blocking calls in threads beside the event loop; no caller waits longer than a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from weir.model.fail_fast import FailFast

P = ParamSpec("P")
T = TypeVar("T")


class BoundedThreads:
    """A few threads for calls that may hang. `run` raises TimeoutError after `patience_s`.

    The bound includes the wait for a free thread. A thread cannot be ended from outside: its call goes on
    until the call's own timeout, and the thread is taken until then. So after one timeout the other callers
    fail fast.
    """

    def __init__(self, count: int, *, patience_s: float, name: str) -> None:
        self._patience_s = patience_s
        self._fail_fast = FailFast(patience_s)
        self._free = asyncio.Semaphore(count)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in a thread and return its result."""
        try:
            async with asyncio.timeout(self._fail_fast.wait_s()):
                await self._free.acquire()
                working = asyncio.wrap_future(self._threads.submit(work, *args, **kwargs))
                working.add_done_callback(self._release)
                return await asyncio.shield(working)
        except TimeoutError:
            self._fail_fast.note_timeout()
            raise TimeoutError(f"no answer within {self._patience_s:g} s") from None

    def _release(self, working: asyncio.Future[T]) -> None:
        self._free.release()
        if not working.cancelled():
            # The caller may be gone. Reading the error keeps asyncio from logging it as never retrieved.
            working.exception()

    async def aclose(self) -> None:
        """Wait until no call is running."""
        await asyncio.to_thread(self._threads.shutdown)
