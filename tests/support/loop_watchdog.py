"""An event loop in a thread, and a watchdog that knows how long each of its callbacks held it.

Processor time of the loop's own thread is counted, so that a busy machine and the other threads of the test
process change nothing; collections of garbage are not counted, because they walk through everything that
pytest keeps. The loop is asyncio's, because uvloop's callbacks cannot be looked at.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
_LOOK_S = 0.002


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A callback that held the loop for long."""

    ms: float
    where: str
    """The stack when the watchdog last looked, the innermost frames of Weir first."""

    def __str__(self) -> str:
        return f"{self.ms:.1f} ms: {self.where}"


@dataclass
class Watchdog:
    """Notes each callback of one thread's event loop that takes over `bound_ms` of processor time."""

    bound_ms: float = 20.0
    holds: list[Hold] = field(default_factory=list)
    longest_ms: float = 0.0
    callbacks: int = 0
    _thread: int = 0
    _began_s: float | None = None
    _stack: str = ""
    _collecting_s: float = 0.0
    """Processor time of the thread that collections of garbage took, during the current callback."""

    def take(self) -> list[Hold]:
        """What was noted since the last time."""
        found, self.holds = self.holds, []
        return found

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the event loop of this thread."""
        self._thread = threading.get_ident()
        original = asyncio.Handle._run
        watchdog = self

        def run(handle: asyncio.Handle) -> None:
            if threading.get_ident() != watchdog._thread:
                original(handle)
                return
            watchdog._stack, watchdog._collecting_s, watchdog._began_s = "", 0.0, time.monotonic()
            began_s = time.thread_time()
            try:
                original(handle)
            finally:
                took_ms = (time.thread_time() - began_s - watchdog._collecting_s) * 1_000
                watchdog._began_s = None
                watchdog._note(took_ms, handle)

        stop = threading.Event()
        looking = threading.Thread(target=self._look, args=(stop,), name="watchdog")
        asyncio.Handle._run = run  # type: ignore[method-assign, assignment]
        gc.callbacks.append(self._note_collection)
        looking.start()
        try:
            yield
        finally:
            asyncio.Handle._run = original  # type: ignore[method-assign]
            gc.callbacks.remove(self._note_collection)
            stop.set()
            looking.join()

    def _note_collection(self, phase: str, _: object) -> None:
        if threading.get_ident() == self._thread:
            self._collecting_s += time.thread_time() * (1 if phase == "stop" else -1)

    def _note(self, took_ms: float, handle: asyncio.Handle) -> None:
        self.callbacks += 1
        self.longest_ms = max(self.longest_ms, took_ms)
        if took_ms > self.bound_ms:
            self.holds.append(Hold(ms=took_ms, where=self._stack or repr(handle)))

    def _look(self, stop: threading.Event) -> None:
        """Remember where a callback is that has been running for more than half of the bound."""
        while not stop.wait(_LOOK_S):
            began_s = self._began_s
            if began_s is None or (time.monotonic() - began_s) * 1_000 < self.bound_ms / 2:
                continue
            frame = sys._current_frames().get(self._thread)
            if frame is not None and self._began_s == began_s:
                frames = [one for one in traceback.extract_stack(frame) if "/asyncio/" not in one.filename]
                self._stack = " < ".join(
                    f"{one.filename.rpartition('/weir/')[2]}:{one.lineno} {one.name}"
                    for one in frames[:-9:-1]
                )


class LoopThread:
    """An event loop in a thread of its own, watched from its first callback on."""

    def __init__(self, watchdog: Watchdog) -> None:
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(watchdog,), name="watched loop")

    def __enter__(self) -> LoopThread:
        self._thread.start()
        self._loop.result(timeout=10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.result().call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()

    def _run(self, watchdog: Watchdog) -> None:
        async def main() -> None:
            self._loop.set_result(asyncio.get_running_loop())
            await self._stop.wait()

        with watchdog.watching(), asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(main())

    def run(self, work: Coroutine[Any, Any, T], *, within_s: float = 120.0) -> T:
        """The result of work that is done on this loop; the calling thread waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop.result()).result(timeout=within_s)

    def spent_s(self) -> float:
        """Processor time that the loop's thread has taken so far."""
        assert self._thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    @contextmanager
    def entered(self, context: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
        """Inside an asynchronous context, which one task of this loop enters and leaves."""
        value: Future[T] = Future()
        leave = asyncio.Event()

        async def stay() -> None:
            try:
                async with context() as entered:
                    value.set_result(entered)
                    await leave.wait()
            except BaseException as error:
                if value.done():
                    raise
                value.set_exception(error)

        loop = self._loop.result()
        staying = asyncio.run_coroutine_threadsafe(stay(), loop)
        try:
            yield value.result(timeout=120)
        finally:
            loop.call_soon_threadsafe(leave.set)
            staying.result(timeout=120)
