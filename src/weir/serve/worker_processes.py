"""Keeps several worker processes running: starts them, restarts any that dies, and stops them together."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from weir.embedded.child import Child, ChildCommand
from weir.model.asyncio_tasks import cancel_and_wait, run_to_end
from weir.model.backoff import Backoff

log = structlog.get_logger("weir.worker")
_BACKOFF = Backoff(first_s=0.5, longest_s=30.0)
# After a process ran this long, earlier failures no longer count.
_STEADY_AFTER_S = 10.0
# How long a worker may take after its drain to settle and to close its connections, before it is killed.
_AFTER_DRAIN_S = 10.0
# Bad settings or an app that cannot be imported: another start ends the same way.
MISCONFIGURED = 2
# SIGTERM kills only a process that is still starting and holds no messages; others drain and exit with 0.
_ENDED_WELL = (0, -signal.SIGTERM)


class WorkerProcesses:
    """`count` processes of one command. `run` returns one exit status for all of them."""

    def __init__(
        self, arguments: Sequence[str], *, count: int, drain_s: float, backoff: Backoff = _BACKOFF
    ) -> None:
        self._command = ChildCommand(
            argv=(sys.executable, "-m", "weir.cli", "worker", *arguments),
            cwd=Path.cwd(),
            env=os.environ,
            # Handlers create files with the same rights as in a worker that runs alone.
            umask=None,
        )
        self._count = count
        self._patience_s = drain_s + _AFTER_DRAIN_S
        self._backoff = backoff
        self._children: dict[int, Child] = {}

    async def run(self) -> int:
        """Keep the processes running until cancelled. Then stop them, and return 0 if all ended well.

        Returns early with the status of a process that is misconfigured.
        """
        keepers = [asyncio.create_task(self._keep(number)) for number in range(1, self._count + 1)]
        status = 0
        try:
            await asyncio.wait(keepers, return_when=asyncio.FIRST_COMPLETED)
            status = MISCONFIGURED
        except asyncio.CancelledError:
            log.info("stopping worker processes", count=len(self._children))
        finally:
            # After a second signal, too, wait until every process has ended.
            with suppress(asyncio.CancelledError):
                await run_to_end(self._stop(keepers))
        for task in keepers:
            if not task.cancelled():
                task.result()
        ended_well = all(child.status() in _ENDED_WELL for child in self._children.values())
        return status or (0 if ended_well else 1)

    async def _keep(self, number: int) -> None:
        """Start one process again whenever it ends. Returns if it is misconfigured."""
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            started = loop.time()
            child = self._children[number] = Child(self._command, log=None)
            log.info("worker process started", number=number, pid=child.pid)
            status = await child.wait()
            # Also end processes that its handlers started.
            child.kill()
            if status == MISCONFIGURED:
                return
            failures = 1 if loop.time() - started > _STEADY_AFTER_S else failures + 1
            pause_s = self._backoff.pause_s(failures)
            log.warning(
                "worker process ended; it is started again",
                number=number,
                pid=child.pid,
                how=_how(status),
                after_s=pause_s,
            )
            await asyncio.sleep(pause_s)

    async def _stop(self, keepers: list[asyncio.Task[None]]) -> None:
        """Ask all processes to drain, and kill each one that takes too long."""
        await cancel_and_wait(keepers)
        await asyncio.gather(*(self._stop_one(child) for child in self._children.values()))

    async def _stop_one(self, child: Child) -> None:
        if child.status() is None:
            await child.stop(patience_s=self._patience_s)
        if (status := child.status()) is not None and status not in _ENDED_WELL:
            log.warning("worker process did not end well", pid=child.pid, how=_how(status))


def _how(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"
