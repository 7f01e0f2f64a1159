"""Reads how fast the queues of an environment are served right now."""

from __future__ import annotations

from weir.model.durations import MINUTE_MS
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.warehouse.reading.freshness import FreshnessReader
from weir.warehouse.reading.windows import WindowReader, frame_for


class RateReader:
    """Reads rates over the newest minute that has landed."""

    def __init__(self, windows: WindowReader, freshness: FreshnessReader, *, shards: int) -> None:
        self._windows = windows
        self._freshness = freshness
        self._shards = shards

    async def dequeued_per_minute(self, environment: EnvironmentRef) -> dict[str, float] | None:
        """Messages handed out per minute, by queue; queues that handed out none are left out.

        None while telemetry is stale, because missing events do not mean that nothing happened.
        """
        fresh = await self._freshness.of("queue")
        shard = shard_of(environment, shards=self._shards)
        if fresh.is_stale(shard):
            return None
        known_ms = fresh.complete_until_ms(shard)
        frame = frame_for(end_ms=known_ms - 1, window_ms=MINUTE_MS)
        # The newest bucket is still being filled: the minute ends where telemetry does.
        span_ms = max(known_ms - frame.start_ms, 1)
        sums = (await self._windows.sums([environment], [frame]))[frame]
        return {queue.queue: one.counts["dequeued"] * MINUTE_MS / span_ms for queue, one in sums.items()}
