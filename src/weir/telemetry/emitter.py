"""Events of Python processes on their way to the streams: never blocks, never raises.

The broker's own events are appended by its scripts. This is for everyone else: `emit` packs an event
into a bounded buffer and returns; `run` carries the buffer to Redis. When Redis is away the buffer
fills, then the oldest events make room, and both are counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

import structlog
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from weir.model.shards import jump_hash, text_key
from weir.redis_client import DRIVER_ERRORS
from weir.telemetry.codec import MetricEvent, pack
from weir.telemetry.events import STREAM_FIELD, EventKind
from weir.telemetry.streams import DEFAULT_MAX_LENGTH, stream_key

_log = structlog.get_logger(__name__)

FLUSH_BATCH = 1_000


@dataclass(slots=True, kw_only=True)
class EmitterCounts:
    """What became of the events of one process."""

    emitted: int = 0
    sent: int = 0
    dropped: int = 0
    """Pushed out of the full buffer, or impossible to pack."""
    failed_flushes: int = 0


class MetricsEmitter:
    """A bounded buffer of packed events and the loop that empties it."""

    def __init__(
        self,
        redis: Redis | RedisCluster,
        *,
        shards: int,
        capacity: int = 10_000,
        max_length: int = DEFAULT_MAX_LENGTH,
        interval_s: float = 1.0,
    ) -> None:
        self.counts = EmitterCounts()
        self._redis = redis
        self._shards = shards
        self._max_length = max_length
        self._interval_s = interval_s
        self._buffer: deque[tuple[str, bytes]] = deque(maxlen=capacity)

    def emit(self, kind: EventKind, event: MetricEvent) -> None:
        """Take one event along. A subject's events share a shard, so that their order is kept."""
        self.counts.emitted += 1
        try:
            shard = jump_hash(text_key(*event.dimensions), self._shards)
            packed = pack(kind, event)
        except Exception as error:
            # Telemetry must never fail the work that it describes, whatever it was handed.
            self.counts.dropped += 1
            _log.warning("event cannot be packed", metric=kind.name, error=str(error))
            return
        self.counts.dropped += len(self._buffer) == self._buffer.maxlen
        self._buffer.append((stream_key(kind.name, shard), packed))

    async def flush(self) -> None:
        """Send what is buffered; on failure it stays for the next time."""
        while self._buffer:
            batch = [self._buffer[index] for index in range(min(len(self._buffer), FLUSH_BATCH))]
            try:
                await self._append(batch)
            except DRIVER_ERRORS as error:
                self.counts.failed_flushes += 1
                _log.warning("events stay in the buffer", waiting=len(self._buffer), error=str(error))
                return
            self._forget(batch)

    async def run(self) -> None:
        """Flush for ever; on the way out send what is left."""
        try:
            while True:
                await asyncio.sleep(self._interval_s)
                await self.flush()
        finally:
            await self.flush()

    async def _append(self, batch: list[tuple[str, bytes]]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for key, packed in batch:
            pipeline.xadd(key, {STREAM_FIELD: packed}, maxlen=self._max_length, approximate=True)
        await pipeline.execute()

    def _forget(self, batch: list[tuple[str, bytes]]) -> None:
        """Drop what was sent, unless the full buffer pushed some of it out meanwhile."""
        self.counts.sent += len(batch)
        for item in batch:
            if self._buffer and self._buffer[0] is item:
                self._buffer.popleft()
