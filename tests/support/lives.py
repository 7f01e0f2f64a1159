"""Reads the lives that a Redis broker appended to its stream."""

from __future__ import annotations

from support.streams import event_bytes
from weir.broker.redis import RedisBroker
from weir.model.lives import Life
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.telemetry.codec import MetricEvent, unpack
from weir.telemetry.events import LIFE
from weir.telemetry.life_rows import lives_of
from weir.telemetry.streams import stream_key


async def life_events(broker: RedisBroker, queue: QueueRef) -> list[MetricEvent]:
    """The events with the lives of a queue, in their order."""
    key = stream_key(LIFE.name, shard_of(queue.scope, shards=broker.shards))
    entries = await broker._runner.client.execute_command("XRANGE", key, "-", "+")
    events = (unpack(LIFE, event_bytes(fields)) for _, fields in entries)
    return [event for event in events if event.dimensions == queue.names]


async def emitted_lives(broker: RedisBroker, queue: QueueRef) -> list[Life]:
    """The lives of a queue, in their order."""
    return [life for event in await life_events(broker, queue) for life in lives_of(event)]
