"""Child processes for synchronous tasks. A call that takes too long is ended by killing its process."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weir.model.handling import Reject, Retry
from weir.tasks.frames import MAX_FRAME, pack_frame, read_frame
from weir.workers.handler_time import handler_time_standing

# How long a process may take to end after it was killed.
_END_S = 2.0
START_S = 60.0
"""How long a process may take to load its app. This does not count into the timeout of its task."""


class TaskCrashed(Exception):
    """The process of a task ended before the task did."""


class RaisedInProcess(Exception):
    """A task raised in its process; the text is its traceback there."""


@dataclass(frozen=True, slots=True)
class PackedResult:
    """A result that did not come back as an object: its JSON, or a note that says why it is not kept."""

    data: bytes | None


@dataclass(slots=True, kw_only=True)
class _Child:
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class TaskProcesses:
    """Calls tasks of `module:app` in child processes. Idle processes are used again."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._idle: list[_Child] = []

    async def call(self, task: str, payload: bytes) -> Any:
        """Call a task; returns its result. If the call is cancelled, its process is killed."""
        child = await self._take_idle() or await self._start(task)
        async with self._ended_on_failure(child, task):
            child.writer.write(pack_frame({"task": task, "payload": payload.decode()}))
            answer = await read_frame(child.reader)
        self._idle.append(child)
        return _told(answer)

    async def _take_idle(self) -> _Child | None:
        """An idle process that lives; one that was killed meanwhile would cost the call an attempt."""
        while self._idle:
            child = self._idle.pop()
            if _lives(child.process.pid):
                return child
            await self._end(child)
        return None

    async def aclose(self) -> None:
        """End the idle processes."""
        while self._idle:
            await self._end(self._idle.pop())

    async def _start(self, task: str) -> _Child:
        """Start a process and wait until it has loaded the app. Until then the task's time stands still."""
        with handler_time_standing():
            child = await self._spawn()
            async with self._ended_on_failure(child, task):
                try:
                    async with asyncio.timeout(START_S):
                        await read_frame(child.reader)
                except TimeoutError:
                    raise TaskCrashed(
                        f"the process of the task `{task}` did not start within {START_S:g} s"
                    ) from None
        return child

    @asynccontextmanager
    async def _ended_on_failure(self, child: _Child, task: str) -> AsyncIterator[None]:
        """Kill the process if the block fails, because it may still owe an answer."""
        try:
            yield
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._end(child)
            raise TaskCrashed(
                f"the process of the task `{task}` ended with {child.process.returncode}"
            ) from None
        except BaseException:
            await asyncio.shield(self._end(child))
            raise

    async def _spawn(self) -> _Child:
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "weir.tasks.process_child", str(theirs.fileno()), self._target),
                pass_fds=(theirs.fileno(),),
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
                },
            )
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_FRAME)
        return _Child(process=process, reader=reader, writer=writer)

    async def _end(self, child: _Child) -> None:
        child.writer.close()
        if child.process.returncode is None:
            child.process.kill()
        await asyncio.wait_for(child.process.wait(), _END_S)


def _lives(pid: int) -> bool:
    # `returncode` is set when the event loop hears of the end, and that may be later.
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _told(answer: dict[str, Any]) -> Any:
    """The result in an answer; raises the exception that the answer describes."""
    match answer["ending"]:
        case "done":
            return answer["result"] if "result" in answer else PackedResult(answer["packed"])
        case "reject":
            raise Reject(answer["error"])
        case "retry":
            delay_ms = answer["delay_ms"]
            raise Retry(answer["error"], delay=None if delay_ms is None else delay_ms / 1_000)
    raise RaisedInProcess(answer["error"])
