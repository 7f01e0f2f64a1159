"""What the operation queue needs besides draining: readings for admission, rates, cleaning up."""

from __future__ import annotations

import asyncio
import logging
import time

from weir.admission.admission import Admission
from weir.control.database import Database
from weir.errors import WeirError
from weir.operations.desk import QUERIES
from weir.operations.estimate import UNKNOWN, Rate, RateMeter
from weir.operations.queue import OperationQueue

log = logging.getLogger(__name__)

RATES_WITHIN_MS = 5_000
_LAG_STEP_S = 0.05


class LagSampler:
    """How late the event loop is, told to admission; a peak fades within a few steps."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def run(self) -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(_LAG_STEP_S)
            late_ms = (time.perf_counter() - started - _LAG_STEP_S) * 1000
            self._admission.lag_ms += (max(0.0, late_ms) - self._admission.lag_ms) * 0.3
            self._admission.rested(_LAG_STEP_S)


class DepthSampler:
    """Reads depth and rates of all processes, publishes this one's, and hands them to admission."""

    def __init__(
        self,
        *,
        queue: OperationQueue,
        admission: Admission,
        meter: RateMeter,
        process: str,
        every_s: float = 0.25,
    ) -> None:
        self._queue = queue
        self._admission = admission
        self._meter = meter
        self._process = process
        self._every_s = every_s
        self._published: Rate | None = None
        self._others = UNKNOWN

    async def run(self) -> None:
        while True:
            try:
                await self.sample()
            except WeirError as error:
                log.debug("depth and rates are unknown for now: %s", error)
            await asyncio.sleep(self._every_s)

    async def sample(self) -> None:
        self._admission.depth = await self._queue.depth()
        rate = self._meter.rate
        if rate.per_s and (self._admission.depth or rate != self._published):
            await self._queue.publish_rate(process=self._process, per_s=rate.per_s, floor_ms=rate.floor_ms)
            self._published = rate
        per_s, floor_ms = await self._queue.read_rate(besides=self._process, within_ms=RATES_WITHIN_MS)
        self._others = Rate(per_s=per_s, floor_ms=floor_ms)

    @property
    def rate(self) -> Rate:
        """How fast all processes drain together: this one as of now, the others as they told last."""
        return self._meter.rate.with_others(self._others)


class Cleaner:
    """Forgets finished operations: completed ones after an hour, failed ones after a week."""

    def __init__(
        self,
        *,
        database: Database,
        queue: OperationQueue,
        done_ms: int = 3_600_000,
        failed_ms: int = 7 * 86_400_000,
        every_s: float = 60.0,
        batch: int = 5_000,
    ) -> None:
        self._database = database
        self._queue = queue
        self._ages = {"done_ms": done_ms, "failed_ms": failed_ms}
        self._every_s = every_s
        self._batch = batch

    async def run(self) -> None:
        while True:
            try:
                await self.clean()
            except WeirError as error:
                log.warning("finished operations are not cleaned up for now: %s", error)
            await asyncio.sleep(self._every_s)

    async def clean(self) -> int:
        """Delete what is old enough, in small transactions; how many operations."""
        deleted = 0
        while True:
            count = await self._database.execute(QUERIES["clean_operations"], **self._ages, limit=self._batch)
            deleted += count
            if count < self._batch:
                break
        await self._database.execute(QUERIES["clean_lanes"])
        await self._queue.forget_rates()
        return deleted
