"""The box: child processes in which what tenants write is run, with little time and memory.

An expression, a patch or a spec is a program. Here it cannot hold an event loop, fill the memory or outlive
its budget: its process is killed, and only its author gets the error. A few children are shared by all
tenants, who take turns. They start when they are needed, run at low priority, are looked at before they are
used again, and end with this process.
"""

from __future__ import annotations

import asyncio
import copyreg
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from weir.errors import OverBudget, Unavailable, WeirError
from weir.model.sandboxed import HEAD, ITEM, CallEnding, proxy_of, receive_frame

T = TypeVar("T")

CHILDREN = max(2, min(4, os.cpu_count() or 1))
"""Two are the fewest with which one tenant cannot hold all of them."""
MAX_WAITING = 128
"""Calls of one owner that may wait, as many as a worker has slots; and ten times as many of all owners."""
WAIT_S = 10.0
"""How long a call may wait for its turn. Nobody holds a child for longer than the time of a budget."""
IDLE_S = 60.0
"""How long a child waits for the next call before it ends."""
START_S = 60.0
"""How long a child may take to start; a busy machine takes seconds."""
_MIB = 1 << 20
_RETRY_AFTER_S = 1.0
_NONE = -1
_END_S = 30.0
"""How long a process may take to end after it was killed."""
# A child gets no secret of this process: only what the interpreter needs to find its files.
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ", "TMPDIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one call may cost."""

    processor_s: float = 1.0
    """Of one item, if the function calls `begin_item`; else of the whole call."""
    wall_s: float = 30.0
    """Of the whole call. It is long, because a child has a low priority, and a busy machine lets it wait."""
    memory_bytes: int = 256 * _MIB
    answer_bytes: int = 64 * _MIB
    """Of the result on its way back: the caller's event loop waits while it is taken apart."""


EXPRESSION = Budget()


@dataclass(slots=True, kw_only=True)
class _Call:
    owner: str
    what: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    budget: Budget
    due_s: float
    answer: Future[Any] = field(default_factory=Future)


class _Failed(Exception):
    """The child did not answer: why, and whether a fresh child may."""

    def __init__(self, error: WeirError, *, again: bool = False) -> None:
        self.error = error
        self.again = again


class Sandbox:
    """Runs functions in child processes, for any thread or event loop. It costs nothing until it is used."""

    def __init__(self, *, children: int = CHILDREN, idle_s: float = IDLE_S) -> None:
        self._most = children
        self._idle_s = idle_s
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, deque[_Call]] = OrderedDict()
        self._running: dict[str, int] = {}
        self._threads = 0
        self._free = 0
        self._children: set[_Child] = set()

    async def run(
        self,
        function: Callable[..., T],
        *args: Any,
        owner: str,
        what: str = "this",
        budget: Budget = EXPRESSION,
    ) -> T:
        """Call an importable function in a child process and return its result; the arguments are pickled.

        What the function raises is raised here. OverBudget says that it used more than its budget, and begins
        with `what`; its `item` is what `begin_item` was last told. Unavailable says that no child was free in
        time. `owner` is the tenant: no owner holds all children.
        """
        call = self.submit(function, *args, owner=owner, what=what, budget=budget)
        answer = asyncio.wrap_future(call)
        try:
            ended, _ = await asyncio.wait({answer}, timeout=WAIT_S)
        except asyncio.CancelledError:
            answer.cancel()
            raise
        if not ended and call.cancel():
            # Only a call that nobody has begun can be cancelled.
            raise _busy()
        return await answer

    def submit(
        self,
        function: Callable[..., T],
        *args: Any,
        owner: str,
        what: str = "this",
        budget: Budget = EXPRESSION,
    ) -> Future[T]:
        """`run` for code without an event loop."""
        call = _Call(
            owner=owner,
            what=what,
            function=function,
            args=args,
            budget=budget,
            due_s=time.monotonic() + WAIT_S,
        )
        with self._changed:
            waiting = self._waiting.setdefault(owner, deque())
            if len(waiting) >= MAX_WAITING or sum(map(len, self._waiting.values())) >= 10 * MAX_WAITING:
                raise _busy()
            waiting.append(call)
            if sum(map(len, self._waiting.values())) > self._free and self._threads < self._most:
                self._threads += 1
                self._free += 1
                threading.Thread(target=self._serve, name="weir-box", daemon=True).start()
            self._changed.notify_all()
        return call.answer

    def pids(self) -> list[int]:
        """The children that live now."""
        with self._changed:
            return [child.pid for child in self._children]

    def _serve(self) -> None:
        """Work off calls in a child of this thread, until none came for a while."""
        child: _Child | None = None
        while (call := self._next()) is not None:
            wanted = call.answer.set_running_or_notify_cancel()
            ending, value = CallEnding.DONE, None
            try:
                if wanted:
                    child, ending, value = self._answer(call, child)
            except BaseException as error:  # the caller must have an answer, and the thread goes on
                ending, value = CallEnding.RAISED, error
            self._finish(call)
            if wanted:
                (call.answer.set_result if ending is CallEnding.DONE else call.answer.set_exception)(value)
        self._end(child)

    def _next(self) -> _Call | None:
        """The next call whose owner's turn it is; None if there was none for a while."""
        with self._changed:
            while (call := self._take()) is None:
                if not self._changed.wait(self._idle_s) and not any(self._waiting.values()):
                    self._threads -= 1
                    break
            self._free -= 1
            return call

    def _take(self) -> _Call | None:
        share = self._most - 1
        for owner in list(self._waiting):
            if not self._waiting[owner]:
                del self._waiting[owner]
            elif self._running.get(owner, 0) < share:
                self._waiting.move_to_end(owner)
                self._running[owner] = self._running.get(owner, 0) + 1
                return self._waiting[owner].popleft()
        return None

    def _finish(self, call: _Call) -> None:
        with self._changed:
            self._running[call.owner] -= 1
            if not self._running[call.owner]:
                del self._running[call.owner]
            self._free += 1
            self._changed.notify_all()

    def _answer(self, call: _Call, child: _Child | None) -> tuple[_Child, CallEnding, Any]:
        """The answer to a call, and the child that gave it."""
        if time.monotonic() > call.due_s:
            raise _busy()
        work = pickle.dumps((call.function, call.args), protocol=pickle.HIGHEST_PROTOCOL)
        for again in (True, False):
            if child is None or not child.alive:
                self._end(child)
                child = self._start()
            try:
                return child, *child.call(work, call)
            except _Failed as failed:
                self._end(child)
                if not (again and failed.again):
                    raise failed.error from None
            except BaseException:
                self._end(child)
                raise
        raise AssertionError("the second try returns or raises")

    def _start(self) -> _Child:
        child = _Child()
        with self._changed:
            self._children.add(child)
        return child

    def _end(self, child: _Child | None) -> None:
        """End a child."""
        if child is not None:
            with self._changed:
                self._children.discard(child)
            child.end()

    def forget(self) -> None:
        """Begin anew in a process that was forked: threads and children belong to its parent."""
        for child in self._children:
            child.connection.close()
        self._reset()


class _Child:
    """A process of the box, and the connection to it."""

    def __init__(self) -> None:
        self._calls = 0
        self.connection, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as shared:
            shared.truncate(ITEM.size)
            self._item = mmap.mmap(shared.fileno(), ITEM.size)
            fds = (theirs.fileno(), shared.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from weir.model.sandboxed import main; main{fds}"],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
        self.pid = self._process.pid
        self.connection.settimeout(START_S)
        try:
            started = receive_frame(self.connection)
        except OSError:
            started = None
        if started is None:
            self.end()
            raise Unavailable("no process of the box could start", retry_after_s=_RETRY_AFTER_S)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def call(self, work: bytes, call: _Call) -> tuple[CallEnding, Any]:
        """What the function returned or raised; _Failed if its process did not get that far."""
        self._calls += 1
        ITEM.pack_into(self._item, 0, _NONE)
        until_s = time.monotonic() + call.budget.wall_s
        self.connection.settimeout(call.budget.wall_s)
        budget = call.budget
        frame = pickle.dumps((budget.memory_bytes, budget.processor_s, budget.answer_bytes, work))
        try:
            self.connection.sendall(HEAD.pack(len(frame)))
            self.connection.sendall(frame)
            answer = receive_frame(self.connection, until_s=until_s)
        except TimeoutError:
            raise self._over(call, f"took longer than {call.budget.wall_s:g} s") from None
        except OSError:
            answer = None
        if answer is None:
            raise self._death(call)
        ending, value = pickle.loads(answer)
        if ending is CallEnding.MEMORY:
            raise self._over(call, _memory(call.budget), again=self._calls > 1)
        if ending is CallEnding.LARGE:
            raise self._over(call, f"has a result of more than {call.budget.answer_bytes // _MIB} MiB")
        return ending, value

    def _death(self, call: _Call) -> _Failed:
        code = self._process.wait(_END_S)
        if code == -signal.SIGPROF:
            return self._over(call, f"used more than {call.budget.processor_s:g} s of processor time")
        if code in (-signal.SIGKILL, -signal.SIGTERM):
            # It was killed from outside.
            killed = "a process of the box was killed; the machine may be out of memory"
            return _Failed(Unavailable(killed, retry_after_s=_RETRY_AFTER_S), again=True)
        # The engine ends its process if it gets no memory, maybe because of what earlier calls left behind.
        return self._over(call, f"{_memory(call.budget)}, or ended its process", again=self._calls > 1)

    def _over(self, call: _Call, what: str, *, again: bool = False) -> _Failed:
        (item,) = ITEM.unpack(self._item[:])
        place = {} if item == _NONE else {"item": item}
        return _Failed(OverBudget(f"{call.what} {what}; ask for less at once", **place), again=again)

    def end(self) -> None:
        """End the process."""
        self.connection.close()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._item.close()


def _busy() -> Unavailable:
    return Unavailable(
        "too many expressions and specs are being worked on; try again", retry_after_s=_RETRY_AFTER_S
    )


def _memory(budget: Budget) -> str:
    return f"used more than {budget.memory_bytes // _MIB} MiB of memory"


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    path = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return {**kept, "PYTHONPATH": path}


# Messages without headers have a shared one, which `pickle` does not know.
copyreg.pickle(MappingProxyType, lambda proxy: (proxy_of, (dict(proxy),)))

SANDBOX = Sandbox()
"""The box of this process for expressions."""
SPECS = Sandbox(children=2)
"""The one for specs. A plan takes seconds, and no expression of anybody waits behind plans of others."""
for _box in (SANDBOX, SPECS):
    os.register_at_fork(after_in_child=_box.forget)
