"""Background loops of a process, each restarted with back-off when it fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from weir.errors import WeirError
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.backoff import Backoff
from weir.model.item_loops import is_own_end

log = structlog.get_logger("weir.serve")
_BACKOFF = Backoff(first_s=0.5, longest_s=30.0)
_HEALTHY_S = 60.0
"""After a run of this length, earlier failures of a loop no longer count for its back-off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Work that goes on until it is cancelled."""

    name: str
    run: Callable[[], Awaitable[None]]


class LoopSupervisor:
    """Keeps loops running. A loop that fails is started again after a pause; the others go on."""

    def __init__(self, loops: tuple[Loop, ...], *, backoff: Backoff = _BACKOFF) -> None:
        self._loops = loops
        self._backoff = backoff
        self.restarts: dict[str, int] = {loop.name: 0 for loop in loops}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run every loop while the block runs, and wait at its end until all have ended."""
        tasks = [asyncio.create_task(self._keep(loop), name=loop.name) for loop in self._loops]
        try:
            yield
        finally:
            await cancel_and_wait(tasks)

    async def families(self) -> AsyncIterator[Metric]:
        """How often each loop had to be started again."""
        family = CounterMetricFamily(
            "weir_loop_restarts", "How often a background loop failed and was restarted.", labels=("loop",)
        )
        for name, count in self.restarts.items():
            family.add_metric((name,), count)
        yield family

    async def _keep(self, loop: Loop) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            try:
                await loop.run()
                log.warning("loop ended", loop=loop.name)
            except WeirError as error:
                log.warning("loop failed", loop=loop.name, code=error.code, error=str(error))
            except BaseException as error:
                if is_own_end(error):
                    raise
                log.exception("loop failed", loop=loop.name)
            self.restarts[loop.name] += 1
            failures = 1 if time.monotonic() - started > _HEALTHY_S else failures + 1
            await asyncio.sleep(self._backoff.pause_s(failures))
