"""Reads the history of one queue, or of a whole environment, as a series."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weir.model.clock import Clock
from weir.model.durations import HOUR_MS
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.warehouse.reading.digests import DigestReader
from weir.warehouse.reading.freshness import LandedGap, Trust, TrustReader
from weir.warehouse.reading.periods import DEFAULT_RETENTION_MS, Resolution, Window
from weir.warehouse.reading.questions import ask_tenant
from weir.warehouse.reading.reader import Answer, Question, Reader
from weir.warehouse.reading.series import Columns, Series, Shape, TimeSpan, build_series
from weir.warehouse.reading.series_shapes import (
    ENVIRONMENT_SHAPE,
    QUEUE_SHAPE,
    SketchPart,
    sketch_parts,
    with_waits,
)
from weir.warehouse.tables import ENVIRONMENTS, QUEUES, TierSet

_LOOKBACK_MS = 2 * HOUR_MS
"""How far back the window's own tier is searched for the seed; before that, the tier of hours is searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A window, its series, until when that is complete, and which gaps are in it."""

    window: Window
    series: Series
    complete_until_ms: int
    gaps: Sequence[LandedGap]
    heard: bool
    """True if there is a row in the window or before it."""
    sketches: tuple[SketchPart, ...] = ()


class HistoryReader:
    """Reads series of queues and environments, each within its own tenant."""

    def __init__(
        self,
        reader: Reader,
        trust: TrustReader,
        digests: DigestReader,
        *,
        clock: Clock,
        shards: int,
        retention_ms: Mapping[Resolution, int] = DEFAULT_RETENTION_MS,
    ) -> None:
        self._reader = reader
        self._trust = trust
        self._digests = digests
        self._clock = clock
        self._shards = shards
        self._retention_ms = retention_ms

    async def of_queue(self, queue: QueueRef, window: Window) -> History:
        asked = {**await self._series_parameters(QUEUES, window), "queue": queue.queue}
        return await self._history(
            queue.scope,
            window,
            shape=QUEUE_SHAPE,
            rows=ask_tenant("queue_series", queue.scope, **asked),
            seed=ask_tenant("queue_seed", queue.scope, **_seed_parameters(QUEUES, window), queue=queue.queue),
        )

    async def has_queue(self, queue: QueueRef) -> bool:
        """Whether the warehouse holds any row of a queue."""
        table = table_of(QUEUES, Resolution.HOUR)
        question = ask_tenant("queue_exists", queue.scope, table=table, queue=queue.queue)
        return bool(await self._reader.ask(question))

    async def of_environment(self, environment: EnvironmentRef, window: Window) -> History:
        asked = await self._series_parameters(ENVIRONMENTS, window)
        return await self._history(
            environment,
            window,
            shape=ENVIRONMENT_SHAPE,
            rows=ask_tenant("environment_series", environment, **asked),
            seed=ask_tenant("environment_seed", environment, **_seed_parameters(ENVIRONMENTS, window)),
        )

    async def _history(
        self,
        environment: EnvironmentRef,
        window: Window,
        *,
        shape: Shape,
        rows: Question,
        seed: Question,
    ) -> History:
        shard = shard_of(environment, shards=self._shards)
        # Rows, gaps and freshness do not depend on each other, so they are asked at the same time.
        found, trust = await asyncio.gather(
            self._reader.ask_columns(rows),
            self._trust.of("queue", shard),
        )
        # The seed is a second question of its own, so it is asked only if its answer can matter (0060).
        seeds = await self._reader.ask(seed) if self._seedable(window, found) else []
        dropped = trust.spans(switched_off=False)
        series = build_series(
            window,
            shape=shape,
            found=with_waits(found),
            seed=_carried_seed(seeds, window, dropped=dropped),
            gaps=dropped,
            off=trust.spans(switched_off=True),
            known=self._known(window.resolution, trust),
        )
        return History(
            window=window,
            series=series,
            complete_until_ms=trust.complete_until_ms,
            gaps=trust.within(start_ms=window.start_ms, end_ms=window.end_ms),
            heard=bool(found.get("bucket_ms")) or bool(seeds),
            sketches=sketch_parts(found, window),
        )

    async def _series_parameters(self, tiers: TierSet, window: Window) -> dict[str, Any]:
        table = table_of(tiers, window.resolution)
        return {
            "table": table,
            "digests": await self._digests.in_table(table),
            "step_s": window.step_ms // 1_000,
            "start_s": window.start_ms // 1_000,
            "end_s": window.end_ms // 1_000,
        }

    def _seedable(self, window: Window, found: Columns) -> bool:
        """True unless the first bucket has a row of its own, or nothing older is kept."""
        if window.start_ms in found.get("bucket_ms", ()):
            return False
        return window.start_ms > self._clock.now_ms() - self._retention_ms[Resolution.HOUR]

    def _known(self, resolution: Resolution, trust: Trust) -> TimeSpan:
        kept_ms = self._retention_ms[resolution]
        return TimeSpan(start_ms=self._clock.now_ms() - kept_ms, end_ms=trust.complete_until_ms)


def _carried_seed(seeds: Answer, window: Window, *, dropped: Sequence[TimeSpan]) -> Mapping[str, Any] | None:
    """The seed, unless events were dropped between it and the window."""
    if not seeds:
        return None
    at_ms = int(seeds[0]["newest"]["at"].timestamp() * 1_000)
    lost = any(span.end_ms > at_ms and span.start_ms < window.start_ms for span in dropped)
    # There was an event before the window, so counters are 0 and not null; gauges and odometers are unknown.
    return {"last": None} if lost else seeds[0]


def _seed_parameters(tiers: TierSet, window: Window) -> Mapping[str, Any]:
    """The window's tier answers back to a whole hour; before that, the tier of hours answers."""
    lookback_ms = max(window.start_ms - _LOOKBACK_MS, 0)
    return {
        "table": table_of(tiers, window.resolution),
        "hours": table_of(tiers, Resolution.HOUR),
        "start_s": window.start_ms // 1_000,
        "lookback_s": (lookback_ms - lookback_ms % HOUR_MS) // 1_000,
    }


def table_of(tiers: TierSet, resolution: Resolution) -> str:
    """The table of one resolution."""
    return next(tier.table for tier in tiers.tiers if tier.step_ms == resolution.step_ms)
