"""How long a queued operation will wait: measured, not assumed. Also the other readings for admission."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from weir.admission.admission import Admission
from weir.errors import WeirError
from weir.operations.model import PACE_S
from weir.operations.queue import OperationQueue

log = structlog.get_logger(__name__)

RATES_WITHIN_MS = 5_000
"""Rates of other processes count for this long after they were published."""
_LAG_STEP_S = 0.05
_SHARE = 0.3
"""The weight of the last round. It is large, because load changes within a few rounds."""
_TYPICAL_SHARE = 0.1
_FADING_S = 7.0
"""After this long a floor that nothing confirmed is back at the typical one: it halved its distance seven
times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How fast the queue drains: operations per second, and how long one waits that finds it empty."""

    per_s: float
    floor_ms: float

    def wait_ms(self, ahead: int) -> int | None:
        """The wait of an operation with `ahead` before it; None when nothing drains."""
        if self.per_s <= 0:
            return None
        return max(1, round(max(self.floor_ms, ahead / self.per_s * 1000)))

    def with_others(self, others: Rate) -> Rate:
        """How fast this process and others drain together."""
        if not others.per_s or not self.per_s:
            return self if self.per_s else others
        return Rate(per_s=self.per_s + others.per_s, floor_ms=(self.floor_ms + others.floor_ms) / 2)


UNKNOWN = Rate(per_s=0.0, floor_ms=0.0)


class RateMeter:
    """Learns one process's drain rate from the rounds that its processor ran.

    A full round shows how fast the queue drains, the pause before it included. Any other round only bounds
    the rate: from below by the operations that it finished, from above by the operations that it had room
    for. It also shows how long an operation waits that finds nothing ahead of it. That is at most the round
    under way, a pause and its own round. If an operation waited longer, it waited for a store that was away.
    """

    def __init__(
        self, *, initial_per_s: float = 0.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = initial_per_s
        self._monotonic = monotonic
        self._floor_ms = 0.0
        self._typical_floor_ms = 0.0
        self._measured_s = 0.0

    def note_round(self, *, operations: int, room: int, took_s: float, ages_ms: list[int]) -> None:
        if operations == 0 or took_s <= 0:
            return
        least, most = operations / took_s, max(operations, room) / took_s
        if not self._per_s:
            self._per_s = math.sqrt(least * most)
        self._per_s += (min(max(self._per_s, least), most) - self._per_s) * _SHARE
        if operations < room and ages_ms:
            median_ms = sorted(ages_ms)[len(ages_ms) // 2]
            self._learn_floor(min(median_ms, (2 * took_s + PACE_S) * 1_000))

    def _learn_floor(self, sample_ms: float) -> None:
        if not self._typical_floor_ms:
            self._floor_ms = self._typical_floor_ms = sample_ms
        typical_ms = self._typical_floor_ms
        # One round that a store held up must not look typical, so its effect is bounded.
        self._typical_floor_ms += (min(sample_ms, 2 * typical_ms) - typical_ms) * _TYPICAL_SHARE
        self._floor_ms = self._faded_floor_ms()
        self._floor_ms += (sample_ms - self._floor_ms) * _SHARE
        self._measured_s = self._monotonic()

    def _faded_floor_ms(self) -> float:
        """The floor as it was measured last; it halves its distance from the typical one every second."""
        silent_s = self._monotonic() - self._measured_s
        kept = 0.5**silent_s if silent_s < _FADING_S else 0.0
        return self._typical_floor_ms + (self._floor_ms - self._typical_floor_ms) * kept

    @property
    def rate(self) -> Rate:
        # Whole milliseconds, because a rate is published to the other processes whenever it changes.
        return Rate(per_s=self._per_s, floor_ms=float(round(self._faded_floor_ms())))


class LagSampler:
    """Measures how late the event loop is, for admission; a peak fades within a few steps."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def run(self) -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(_LAG_STEP_S)
            late_ms = (time.perf_counter() - started - _LAG_STEP_S) * 1000
            self._admission.lag_ms += (max(0.0, late_ms) - self._admission.lag_ms) * 0.3
            self._admission.count_rest(_LAG_STEP_S)


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
                log.debug("depth and rates are unknown for now", error=str(error))
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
        """How fast all processes drain together: this one as of now, the others as they last published."""
        return self._meter.rate.with_others(self._others)
