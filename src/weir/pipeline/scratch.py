"""Gives Spark a temporary folder below the data directory, which is removed with the process."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

# Spark's limit: a socket's path has at most 107 bytes, and Spark reserves the rest for the socket's name.
_LONGEST_FOR_SOCKETS = 60

_SOCKETS = "sockets"
"""A link to the folder of sockets, if that is elsewhere."""


@lru_cache(maxsize=4)
def scratch_folder(root: Path) -> Path:
    """Create a folder below `root` for this process; it is removed when the process ends.

    A process that was killed cannot clean up. But its lock ends with it, so the next process removes every
    folder whose lock nobody holds.
    """
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    # The lock exists and is held before the folder does, so no sweep can remove a folder that is being made.
    held, name = tempfile.mkstemp(prefix="spark-", suffix=".lock", dir=root)
    fcntl.flock(held, fcntl.LOCK_EX)
    folder = Path(name).with_suffix("")
    folder.mkdir(mode=0o700)
    atexit.register(_remove, Path(name))
    return folder


@lru_cache(maxsize=4)
def socket_folder(scratch: Path) -> Path:
    """The folder for sockets: `scratch` itself, or a folder with a short name if its path is too long."""
    if len(os.fsencode(scratch)) <= _LONGEST_FOR_SOCKETS:
        return scratch
    folder = Path(tempfile.mkdtemp(prefix="weir-"))
    (scratch / _SOCKETS).symlink_to(folder)
    return folder


def _sweep(root: Path) -> None:
    for lock in root.glob("spark-*.lock"):
        with suppress(OSError):
            # A lock that can be taken belongs to a process that is gone.
            free = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(lock)
            finally:
                os.close(free)


def _remove(lock: Path) -> None:
    folder = lock.with_suffix("")
    with suppress(OSError):
        shutil.rmtree((folder / _SOCKETS).readlink(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    lock.unlink(missing_ok=True)
