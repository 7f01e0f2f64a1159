"""Allows one pipeline per checkpoint: two with the same journal would overwrite each other's batches."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weir.errors import Misconfigured

_LOCAL = "file://"


@contextmanager
def owned_checkpoint(checkpoint: str) -> Iterator[None]:
    """Hold a local checkpoint's lock while the block runs; a second owner is refused.

    The lock ends with its process, so a dead owner does not keep others out. The lock file stands beside the
    checkpoint, because the checkpoint may be removed while a pipeline runs. Remote checkpoints have no lock.
    """
    path = local_path(checkpoint)
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read().strip() or "another process"
            raise Misconfigured(
                f"a pipeline already runs on `{checkpoint}` ({owner}); stop it first"
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        yield


def local_path(checkpoint: str) -> Path | None:
    """The folder of a local checkpoint; None if it is remote."""
    if checkpoint.startswith(_LOCAL):
        return Path(checkpoint.removeprefix(_LOCAL))
    return None if "://" in checkpoint else Path(checkpoint)
