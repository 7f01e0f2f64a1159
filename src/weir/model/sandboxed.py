"""Runs inside a process of the box: answers calls one by one, each within its budget. `main` is its program.

The process ends with its parent: a thread reads the calls, and sees the end of the connection.
"""

from __future__ import annotations

import mmap
import os
import pickle
import resource
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any

HEAD = struct.Struct("!Q")
"""What stands before each frame: its length."""
ITEM = struct.Struct("!q")
_NICENESS = 5
"""A push goes first. With ten, eight busy processes on two cores would leave a child 3 % of a core."""
_OOM_SCORE = "1000"
"""On Linux: this process is the first to go when the machine has no memory left."""


class CallEnding(StrEnum):
    """How a call ended, if its process did not end before."""

    DONE = "done"
    RAISED = "raised"
    MEMORY = "memory"
    LARGE = "large"


class _Place:
    """Where the process is: at which item, and how long each may take. It does nothing outside a box."""

    def __init__(self) -> None:
        self._item: mmap.mmap | None = None
        self._processor_s = 0.0

    def open(self, fd: int) -> None:
        self._item = mmap.mmap(fd, ITEM.size)

    def limit(self, processor_s: float) -> None:
        self._processor_s = processor_s
        signal.setitimer(signal.ITIMER_PROF, processor_s)

    def begin(self, index: int) -> None:
        if self._item is not None:
            ITEM.pack_into(self._item, 0, index)
            signal.setitimer(signal.ITIMER_PROF, self._processor_s)


_PLACE = _Place()


def begin_item(index: int) -> None:
    """Say which of several items a function is at. Each has the processor time of the budget to itself."""
    _PLACE.begin(index)


def proxy_of(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """A mapping that cannot be changed, as it was before it was sent here."""
    return MappingProxyType(mapping)


def main(connection_fd: int, item_fd: int) -> None:
    """Answer calls until the connection ends."""
    # What stops a whole group of processes must not stop a call: the parent still drains.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # The timer of a budget ends the process, also in the middle of a call into C.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    os.nice(_NICENESS)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _PLACE.open(item_fd)
    connection = socket.socket(fileno=connection_fd)
    calls: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(connection, calls), daemon=True).start()
    used_bytes = _address_space()
    connection.sendall(HEAD.pack(0))
    while True:
        _send(connection, _answer(calls.get(), used_bytes))


def _read(connection: socket.socket, calls: SimpleQueue[bytes]) -> None:
    with suppress(OSError):
        while (call := receive_frame(connection)) is not None:
            calls.put(call)
    os._exit(0)


def _answer(call: bytes, used_bytes: int) -> bytes:
    try:
        return _called(call, used_bytes)
    except MemoryError:
        return pickle.dumps((CallEnding.MEMORY, None))
    finally:
        _PLACE.limit(0)
        _limit_memory(resource.RLIM_INFINITY)


def _called(call: bytes, used_bytes: int) -> bytes:
    memory_bytes, processor_s, answer_bytes, work = pickle.loads(call)
    _limit_memory(used_bytes + memory_bytes)
    _PLACE.limit(processor_s)
    try:
        function, args = pickle.loads(work)
        answer = pickle.dumps((CallEnding.DONE, function(*args)))
    except MemoryError:
        raise
    except Exception as error:
        return _raised(error)
    return answer if len(answer) <= answer_bytes else pickle.dumps((CallEnding.LARGE, None))


def _raised(error: Exception) -> bytes:
    """The exception, for the caller to raise; as text if it cannot travel."""
    try:
        answer = pickle.dumps((CallEnding.RAISED, error))
        pickle.loads(answer)
    except Exception:  # an exception of any package may refuse to be copied
        return pickle.dumps((CallEnding.RAISED, RuntimeError(repr(error))))
    return answer


def _limit_memory(size: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY:
        size = hard if size == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))


def _address_space() -> int:
    """Bytes of addresses that this process uses, 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def receive_frame(connection: socket.socket, *, until_s: float | None = None) -> bytes | None:
    """The next frame; None at the end of the connection. TimeoutError at `until_s` of the monotonic clock."""
    head = _receive(connection, HEAD.size, until_s)
    return None if head is None else _receive(connection, HEAD.unpack(head)[0], until_s)


def _receive(connection: socket.socket, size: int, until_s: float | None) -> bytes | None:
    frame, filled = bytearray(size), 0
    with memoryview(frame) as view:
        while filled < size:
            if until_s is not None:
                connection.settimeout(max(0.001, until_s - time.monotonic()))
            count = connection.recv_into(view[filled:])
            if not count:
                return None
            filled += count
    return bytes(frame)


def _send(connection: socket.socket, body: bytes) -> None:
    connection.sendall(HEAD.pack(len(body)))
    connection.sendall(body)
