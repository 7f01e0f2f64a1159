"""Keeps one process running: starts it again, after a pause that grows, whenever it ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from weir.embedded.child import Child, ChildCommand
from weir.model.backoff import Backoff

BACKOFF = Backoff(first_s=0.5, longest_s=30.0)
# After a process ran this long, earlier failures no longer count.
_STEADY_AFTER_S = 10.0
# SIGTERM kills only a process that is still starting and holds nothing; others end well and exit with 0.
_ENDED_WELL = (0, -signal.SIGTERM)


class KeptChild:
    """A process that is started again whenever it ends.

    `on_end` is told the process that ended, its status and the pause before the next start.
    """

    def __init__(
        self,
        command: ChildCommand,
        *,
        log: Path | None,
        on_start: Callable[[Child], None] = lambda _: None,
        on_end: Callable[[Child, int, float], None],
        backoff: Backoff = BACKOFF,
    ) -> None:
        self.restarts = 0
        self._command = command
        self._log = log
        self._on_start = on_start
        self._on_end = on_end
        self._backoff = backoff
        self._child: Child | None = None

    @property
    def child(self) -> Child | None:
        """Its newest process, which may have ended; None before the first start."""
        return self._child

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.status() is None

    @property
    def ended_well(self) -> bool:
        """Whether its newest process ended as a stop ends it."""
        return self._child is None or self._child.status() in _ENDED_WELL

    async def keep(self, *, gives_up: Callable[[int], bool]) -> int:
        """Keep it running until cancelled; return the status of an end after which a start cannot help."""
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            started = loop.time()
            self._child = child = Child(self._command, log=self._log)
            self._on_start(child)
            status = await child.wait()
            # Also end the processes that it started.
            child.kill()
            if gives_up(status):
                return status
            failures = 1 if loop.time() - started > _STEADY_AFTER_S else failures + 1
            pause_s = self._backoff.pause_s(failures)
            self._on_end(child, status, pause_s)
            await asyncio.sleep(pause_s)
            self.restarts += 1

    async def stop(self, *, patience_s: float) -> None:
        """Ask its process to end, and kill it after `patience_s`. Cancel `keep` before."""
        if self.running and self._child is not None:
            await self._child.stop(patience_s=patience_s)


def how_it_ended(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"
