"""Where Spark may put what is gone when the process ends: below the data directory, never left in `/tmp`."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_LONGEST_FOR_SOCKETS = 60
"""What Spark accepts: a socket's path has at most 107 bytes, and it keeps the rest for the socket's name."""

_SOCKETS = "sockets"
"""A link to the folder of sockets, where that is elsewhere."""


@lru_cache(maxsize=4)
def scratch_folder(root: Path) -> Path:
    """This process's own folder below `root`; it goes with the process.

    Who was killed could not clean up. A folder's lock ends with its process, however that ends, so the next
    one to come takes away what nobody holds.
    """
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    held, name = tempfile.mkstemp(prefix="spark-", suffix=".lock", dir=root)
    fcntl.flock(held, fcntl.LOCK_EX)
    folder = Path(name).with_suffix("")
    folder.mkdir(mode=0o700)
    atexit.register(_remove, Path(name))
    return folder


@lru_cache(maxsize=4)
def socket_folder(scratch: Path) -> Path:
    """The same folder, or one with a short name where a socket's path would be too long."""
    if len(os.fsencode(scratch)) <= _LONGEST_FOR_SOCKETS:
        return scratch
    folder = Path(tempfile.mkdtemp(prefix="weir-"))
    (scratch / _SOCKETS).symlink_to(folder)
    return folder


def _sweep(root: Path) -> None:
    for lock in root.glob("spark-*.lock"):
        with suppress(OSError):
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
