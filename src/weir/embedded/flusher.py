"""Looks after Redis' append-only file from outside: brings it to the disk, and keeps it in append mode.

With `appendfsync everysec`, Redis holds its writes back while its fsync runs, but still answers. So a killed
process loses writes that it had acknowledged. With `appendfsync no` it writes before every answer, and only
the fsync is left to do, which any process can do (0052).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from weir.embedded.append_mode import append_only_since
from weir.embedded.append_only import SINGLE, SPLIT

# `fast` promises to lose at most a second when the machine dies.
PERIOD_S = 1.0
_LOOK_S = 0.05
"""How soon a new file is noticed: a rewrite begins one."""
PID_FILE = "redis.pid"


class Flusher:
    """A thread that flushes one folder. It ends with the process, or when the folder is gone."""

    def __init__(self, folder: Path, *, period_s: float = PERIOD_S, flushes: bool = True) -> None:
        self._folder = folder
        self._period_s = period_s
        self._flushes = flushes
        self._appending: tuple[int, set[tuple[Path, int]]] = (0, set())
        """The process and the files that are known to be in append mode."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it runs already."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="weir-redis-flusher", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        due_s = time.monotonic() + self._period_s
        while self._folder.is_dir():
            time.sleep(min(_LOOK_S, self._period_s))
            with suppress(OSError, ValueError):
                self._let_append()
            if self._flushes and time.monotonic() >= due_s:
                due_s = time.monotonic() + self._period_s
                for path in self._files():
                    # Redis may have just replaced the file by a rewritten one, which holds everything.
                    with suppress(OSError):
                        flush(path)

    def _let_append(self) -> None:
        """Put files that are new into append mode, if this process may."""
        files = {(path, path.stat().st_ino) for path in self._files() if path.exists()}
        pid = int((self._folder / PID_FILE).read_text())
        if (pid, files) == self._appending:
            return
        # The number in the file may be that of another process by now.
        if Path(f"/proc/{pid}/cwd").readlink() == self._folder.resolve():
            append_only_since(pid, [path for path, _ in files])
            self._appending = (pid, files)

    def _files(self) -> Iterator[Path]:
        """The append-only files: one file before Redis 7, a folder of files since."""
        yield self._folder / SINGLE
        yield from (self._folder / SPLIT).glob("*.aof")


def flush(path: Path) -> None:
    """Wait until everything that was written to the file is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
