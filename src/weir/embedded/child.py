"""Runs one child process: starts it through the guard, stops it and if needed kills it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from weir.embedded.unix_accounts import UnixAccount

_GUARD = Path(__file__).with_name("child_guard.py")
_POLL_S = 0.02
# A log is replaced at a start, so at most two files of about this size remain.
_LOG_LIMIT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCommand:
    """The command of a child. `stop_signal` asks it to end cleanly; it is also sent if the parent dies.

    `umask` is set for the files that the child makes; None keeps the parent's umask.
    """

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    stop_signal: int = signal.SIGTERM
    account: UnixAccount | None = None
    umask: int | None = 0o077


class Child:
    """A running child and its log file; without a log, the child writes to its parent's output."""

    def __init__(self, command: ChildCommand, *, log: Path | None, inherit: tuple[int, ...] = ()) -> None:
        self.command = command
        self.log = log
        self._log_start = _start_of(log)
        plan = {
            "argv": command.argv,
            "account": command.account.plan() if command.account else None,
            "death_signal": int(command.stop_signal),
            "parent": os.getpid(),
            "umask": command.umask,
        }
        with nullcontext() if log is None else log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), json.dumps(plan)],
                cwd=command.cwd,
                # Passwords go by the environment. The plan is an argument, which every user can read.
                env={**_base_environment(), **command.env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=None if out is None else subprocess.STDOUT,
                # Its own process group: `kill` ends it whole, and Ctrl-C in a terminal reaches only the
                # parent.
                start_new_session=True,
                pass_fds=inherit,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    async def wait(self) -> int:
        # Polling works in any event loop, and needs neither a signal handler nor a thread.
        while (status := self.status()) is None:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        return status

    async def stop(self, *, patience_s: float = 10.0) -> None:
        """Ask it to end, and kill its whole process group after `patience_s`."""
        if self.status() is None:
            self._process.send_signal(self.command.stop_signal)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.wait(), patience_s)
        self.kill()
        await self.wait()

    def kill(self) -> None:
        """Kill the rest of its process group at once."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def last_lines(self, count: int = 5) -> list[str]:
        """The last lines that this child logged since it started."""
        if self.log is None:
            return []
        with suppress(OSError), self.log.open("rb") as lines:
            lines.seek(self._log_start)
            return [line.decode(errors="replace").rstrip() for line in deque(lines, maxlen=count)]
        return []


def _base_environment() -> dict[str, str]:
    kept = ("PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"LC_ALL": "C.UTF-8"}


def _start_of(log: Path | None) -> int:
    """Where a new child goes on in a log, which is replaced first if it is large."""
    if log is None or not log.exists():
        return 0
    size = log.stat().st_size
    if size > _LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".log.1"))
        return 0
    return size
