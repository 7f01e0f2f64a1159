"""Threads for synchronous handlers. A handler that hangs does not keep the process from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
# An idle thread ends after this long.
IDLE_S = 10.0
_Job = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads(Executor):
    """An executor of daemon threads. It starts a thread when none is idle."""

    def __init__(self, *, name: str = "handler") -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            start = self._idle <= 0
            # Subtracted at once, so that two jobs do not count on the same idle thread.
            self._idle -= 0 if start else 1
        self._jobs.put((future, lambda: fn(*args, **kwargs)))
        if start:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            try:
                future, call = self._jobs.get(timeout=IDLE_S)
            except Empty:
                if self._retire():
                    return
                continue
            _run(future, call)
            with self._lock:
                self._idle += 1

    def _retire(self) -> bool:
        """Whether this idle thread may end. It may not if `submit` already counts on it."""
        with self._lock:
            if self._idle <= 0:
                return False
            self._idle -= 1
            return True


def own_error(error: BaseException) -> RuntimeError:
    """An exception that asyncio treats specially, as an ordinary one."""
    told = RuntimeError(f"the handler raised {type(error).__name__}")
    told.__cause__ = error
    return told


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except (StopIteration, GeneratorExit) as error:
        # asyncio refuses to pass the first on, so that whoever waits would wait for ever. It takes the second
        # for the end of the coroutine that waits.
        future.set_exception(own_error(error))
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
