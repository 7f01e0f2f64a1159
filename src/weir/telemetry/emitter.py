"""Sends events of Python processes to the streams; it never blocks and never raises.

The broker's scripts append their own events. Other processes use this: `emit` packs an event into a bounded
buffer and returns, and `run` sends the buffer to Redis. While Redis does not answer, the buffer fills; then
the oldest events are dropped. Failed flushes and dropped events are counted. Events for a shard whose metrics
are off are not sent.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import structlog
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from weir.model.shards import jump_hash, text_key
from weir.model.write_buffer import WriteBuffer
from weir.redis_client import DRIVER_ERRORS
from weir.telemetry.codec import MetricEvent, pack
from weir.telemetry.events import STREAM_FIELD, EventKind
from weir.telemetry.streams import DEFAULT_MAX_LENGTH, stream_key, switch_key
from weir.telemetry.switch import OFF

_log = structlog.get_logger(__name__)

# Commands per pipeline, so that the events of a long outage are not sent in one piece.
FLUSH_BATCH = 1_000


@dataclass(slots=True, kw_only=True)
class EmitterCounts:
    """How many events of one process were emitted, sent and dropped."""

    emitted: int = 0
    sent: int = 0
    dropped: int = 0
    """Pushed out of the full buffer, or impossible to pack."""
    switched_off: int = 0
    """Not sent, because the metrics of their shard were off."""
    failed_flushes: int = 0


class StreamEmitter:
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
        self._buffer = WriteBuffer(self._append, capacity=capacity, batch=FLUSH_BATCH, away=DRIVER_ERRORS)

    def emit(self, kind: EventKind, event: MetricEvent) -> None:
        """Put one event into the buffer."""
        self.counts.emitted += 1
        try:
            # All events of a subject go to one shard, so that they keep their order.
            shard = jump_hash(text_key(*event.dimensions), self._shards)
            packed = pack(kind, event)
        except Exception as error:
            # Telemetry must never fail the work that it describes, whatever event it gets.
            self.counts.dropped += 1
            _log.warning("event cannot be packed", metric=kind.name, error=str(error))
            return
        self.counts.dropped += self._buffer.add((shard, stream_key(kind.name, shard), packed))

    async def flush(self) -> None:
        """Send the buffer; after a failure the events stay for the next time."""
        with suppress(*DRIVER_ERRORS):
            await self._buffer.flush()

    async def run(self) -> None:
        """Flush for ever, and once more at the end."""
        await self._buffer.run(every_s=self._interval_s)

    async def _append(self, batch: list[tuple[int, str, bytes]]) -> None:
        try:
            off = await self._off_shards({shard for shard, _, _ in batch})
            pipeline = self._redis.pipeline(transaction=False)
            for shard, key, packed in batch:
                if shard not in off:
                    # Redis trims whole nodes with `approximate`, which costs less than an exact length.
                    pipeline.xadd(key, {STREAM_FIELD: packed}, maxlen=self._max_length, approximate=True)
            sent = len(await pipeline.execute())
        except DRIVER_ERRORS as error:
            self.counts.failed_flushes += 1
            _log.warning("events stay in the buffer", waiting=len(self._buffer), error=str(error))
            raise
        self.counts.sent += sent
        self.counts.switched_off += len(batch) - sent

    async def _off_shards(self, shards: set[int]) -> set[int]:
        """The shards among these whose metrics are off."""
        # Asked once per flush. An event from around the moment of a switch may land at the edge of the gap,
        # which does no harm.
        pipeline = self._redis.pipeline(transaction=False)
        for shard in sorted(shards):
            pipeline.hget(switch_key(shard), "state")
        states = await pipeline.execute()
        return {shard for shard, state in zip(sorted(shards), states, strict=True) if state == OFF}
