"""The directory that holds all embedded data, and the lock that gives it one owner at a time."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from weir.embedded.server import make_private
from weir.errors import Misconfigured

SEALING_KEYS = "secrets.key"
"""The file with the keys that seal the secrets of environments. A backup without it cannot open them."""
# Servers whose owner was killed end by themselves; they may take this long to write their data.
_ORPHAN_PATIENCE_S = 30.0


def free_space(folder: Path) -> tuple[Path, int]:
    """How many bytes are free for a folder that may not exist yet, and the existing folder above it."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return existing, shutil.disk_usage(existing).free


class DataDir:
    """A data directory, owned while `lock_fd` is open here or in a child that inherited it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock: IO[str] | None = None

    @property
    def lock_fd(self) -> int:
        if self._lock is None:
            raise RuntimeError("the data directory is not open")
        return self._lock.fileno()

    def folder(self, name: str) -> Path:
        """A folder inside the directory that other users cannot enter; made if needed."""
        return make_private(self.path / name)

    async def open(self) -> None:
        """Make the directory if needed and lock it; a second owner is refused."""
        lock = self._lock_file()
        loop = asyncio.get_running_loop()
        patience = loop.time() + _ORPHAN_PATIENCE_S
        while not _try_lock(lock):
            owner = _owner(lock)
            # The owner's children inherited the lock, and hold it until the last of them has written its
            # data.
            if _alive(owner) or loop.time() > patience:
                lock.close()
                raise Misconfigured(
                    f"`{self.path}` is in use by process {owner or 'unknown'}; "
                    "stop it, or choose another directory with `--data-dir`"
                )
            await asyncio.sleep(0.1)
        lock.seek(0)
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._lock = lock

    def _lock_file(self) -> IO[str]:
        try:
            # Mode 711: the account of PostgreSQL may pass through to its folder, but list nothing. A folder
            # that existed before keeps its mode, because it may be a home directory or /tmp.
            if not self.path.is_dir():
                self.path.mkdir(parents=True)
                self.path.chmod(0o711)
            return (self.path / "lock").open("a+")
        except OSError as error:
            raise Misconfigured(
                f"cannot write to `{self.path}` ({error.strerror}); choose another with `--data-dir`"
            ) from None

    def in_use(self) -> bool:
        """Whether somebody owns the directory now."""
        try:
            with (self.path / "lock").open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def read_json(self, name: str) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            value = json.loads((self.path / name).read_text())
            if isinstance(value, dict):
                return value
        return {}

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        self._write(name, json.dumps(value))

    def _write(self, name: str, text: str) -> None:
        """Write a private file, either whole or not at all."""
        scratch = self.path / f"{name}.{os.getpid()}"
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        scratch.replace(self.path / name)

    def password(self) -> str:
        """The password of this directory's servers, made once and kept in a private file."""
        kept = self.read_json("secrets.json")
        if "password" not in kept:
            kept = {"password": secrets.token_urlsafe(24)}
            self.write_json("secrets.json", kept)
        return str(kept["password"])

    def ensure_sealing_key(self) -> None:
        """Make the key that seals the secrets of environments, once, in a private file."""
        from weir.control.sealing import new_key  # not for commands that only ask the API

        if not (self.path / SEALING_KEYS).exists():
            self._write(SEALING_KEYS, new_key() + "\n")


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _owner(lock: IO[str]) -> int | None:
    lock.seek(0)
    text = lock.read().strip()
    return int(text) if text.isdigit() else None


def _alive(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process was killed and its parent has not reaped it; it owns nothing any more."""
    with suppress(OSError):
        # The name stands in brackets and may contain anything; the state is the first word after it.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    return False
