"""Keeps several worker processes running: starts them, restarts any that dies, and stops them together."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from weir.embedded.child import Child, ChildCommand
from weir.embedded.kept import BACKOFF, KeptChild, how_it_ended
from weir.model.asyncio_tasks import cancel_and_wait, run_to_end
from weir.model.backoff import Backoff

log = structlog.get_logger("weir.worker")
# How long a worker may take after its drain to settle and to close its connections, before it is killed.
_AFTER_DRAIN_S = 10.0
# Bad settings or an app that cannot be imported: another start ends the same way.
MISCONFIGURED = 2


class WorkerProcesses:
    """`count` processes of one command. `run` returns one exit status for all of them."""

    def __init__(
        self, arguments: Sequence[str], *, count: int, drain_s: float, backoff: Backoff = BACKOFF
    ) -> None:
        command = ChildCommand(
            argv=(sys.executable, "-m", "weir.cli", "worker", *arguments),
            cwd=Path.cwd(),
            env=os.environ,
            # Handlers create files with the same rights as in a worker that runs alone.
            umask=None,
        )
        self._patience_s = drain_s + _AFTER_DRAIN_S
        self._kept = [_kept(command, number, backoff) for number in range(1, count + 1)]

    async def run(self) -> int:
        """Keep the processes running until cancelled. Then stop them, and return 0 if all ended well.

        Returns early with the status of a process that is misconfigured.
        """
        keepers = [
            asyncio.create_task(kept.keep(gives_up=lambda status: status == MISCONFIGURED))
            for kept in self._kept
        ]
        status = 0
        try:
            await asyncio.wait(keepers, return_when=asyncio.FIRST_COMPLETED)
            status = MISCONFIGURED
        except asyncio.CancelledError:
            log.info("stopping worker processes", count=len(self._kept))
        finally:
            # After a second signal, too, wait until every process has ended.
            with suppress(asyncio.CancelledError):
                await run_to_end(self._stop(keepers))
        for task in keepers:
            if not task.cancelled():
                task.result()
        return status or (0 if all(kept.ended_well for kept in self._kept) else 1)

    async def _stop(self, keepers: list[asyncio.Task[int]]) -> None:
        """Ask all processes to drain, and kill each one that takes too long."""
        await cancel_and_wait(keepers)
        await asyncio.gather(*(self._stop_one(kept) for kept in self._kept))

    async def _stop_one(self, kept: KeptChild) -> None:
        await kept.stop(patience_s=self._patience_s)
        if not kept.ended_well and kept.child is not None and (status := kept.child.status()) is not None:
            log.warning("worker process did not end well", pid=kept.child.pid, how=how_it_ended(status))


def _kept(command: ChildCommand, number: int, backoff: Backoff) -> KeptChild:
    def on_start(child: Child) -> None:
        log.info("worker process started", number=number, pid=child.pid)

    def on_end(child: Child, status: int, pause_s: float) -> None:
        log.warning(
            "worker process ended; it is started again",
            number=number,
            pid=child.pid,
            how=how_it_ended(status),
            after_s=pause_s,
        )

    return KeptChild(command, log=None, on_start=on_start, on_end=on_end, backoff=backoff)
