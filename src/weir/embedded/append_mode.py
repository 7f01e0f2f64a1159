"""Puts the server's append-only file into append mode, from outside of the server.

Since Redis 7 a server, and every Valkey, opens the file that it begins at a rewrite without append mode. When
a full disk cuts a write short, the server takes the part away by cutting the file, but goes on writing at the
place after the part. That leaves a run of NULs, and from then on the server counts too few bytes: when the
next write is cut short, it cuts entries away that it had acknowledged. In append mode every write goes to the
end of the file, whatever the server counts.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

# The same number on all machines that Linux runs on, but for Alpha.
_PIDFD_GETFD = 438


def append_only_since(pid: int, files: Iterable[Path]) -> bool:
    """Make every open file of the process among `files` append only; False if that is not allowed."""
    wanted = {str(file.resolve()) for file in files}
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            new = str(handle.readlink()) in wanted and not _appends(pid, handle.name)
            if new and not _let_append(pid, int(handle.name)):
                return False
    return True


def _appends(pid: int, handle: str) -> bool:
    lines = Path(f"/proc/{pid}/fdinfo/{handle}").read_text().splitlines()
    flags = next(line for line in lines if line.startswith("flags:")).split()[1]
    return bool(int(flags, 8) & os.O_APPEND)


def _let_append(pid: int, handle: int) -> bool:
    """Set the mode on the server's own open file, which this process gets a second handle of."""
    process = os.pidfd_open(pid)
    try:
        shared = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, handle, 0)
    finally:
        os.close(process)
    if shared < 0:
        return False
    try:
        fcntl.fcntl(shared, fcntl.F_SETFL, fcntl.fcntl(shared, fcntl.F_GETFL) | os.O_APPEND)
    finally:
        os.close(shared)
    return True
