"""The memory that messages, idempotency keys, events and lives take in Redis, and in the archive."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import closing
from itertools import chain
from typing import Any

from redis import Redis

from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.durations import HOUR_MS
from weir.model.message import Failure, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.pipeline.archive import encoded
from weir.pipeline.decoding import Ages, events_of
from weir.pipeline.definition import LIFE_METRIC, QUEUE_METRIC, MetricDefinition
from weir.spec.ir import DeliveryPolicy, QueueSpec
from weir.telemetry.entries import entries_of
from weir.telemetry.streams import stream_key
from weir.warehouse.tables import TierRetention

_AT_ONCE = 1_000
_PAYLOAD = 1_000
_KEY = 16
"""Random bytes of an idempotency key; as text it has twice as many characters."""


async def measure_redis(url: str, environment: EnvironmentRef, *, messages: int) -> dict[str, float]:
    """Bytes per waiting message beyond its payload, and per idempotency key, event and life."""
    with closing(Redis.from_url(url)) as redis:
        found = await _messages(redis, url, environment, messages)
        return {**found, **await _events(redis, url, environment, messages // 10)}


async def _messages(redis: Redis, url: str, environment: EnvironmentRef, count: int) -> dict[str, float]:
    broker = RedisBroker(RedisConnection(url=url), shards=1, metrics=False)
    plain, keyed = environment.queue("plain"), environment.queue("keyed")
    for queue in (plain, keyed):
        await broker.define(queue, QueueSpec(name=queue.queue, delivery=DeliveryPolicy(max_attempts=9)))
    empty = _memory(redis)
    await _push(broker, plain, count, _message)
    waiting = _memory(redis)
    for _ in range(count // _AT_ONCE):
        handed = await broker.dequeue(plain, consumer="bench", limit=_AT_ONCE)
        await broker.nack(
            [Failure(lease=one.lease, error="refused", delay_ms=12 * HOUR_MS) for one in handed]
        )
    retrying = _memory(redis)
    await _push(broker, keyed, count, _message_with_key)
    remembered = _memory(redis)
    await broker.aclose()
    a_message = (waiting - empty) / count - _PAYLOAD
    return {
        "message_that_waits": round(a_message),
        "message_that_waits_for_a_retry": round((retrying - empty) / count - _PAYLOAD),
        "idempotency_key": round((remembered - retrying) / count - _PAYLOAD - a_message),
    }


async def _push(broker: RedisBroker, queue: QueueRef, count: int, make: Callable[[], NewMessage]) -> None:
    for _ in range(count // _AT_ONCE):
        await broker.enqueue(queue, [make() for _ in range(_AT_ONCE)])


def _message() -> NewMessage:
    return NewMessage(payload=secrets.token_bytes(_PAYLOAD))


def _message_with_key() -> NewMessage:
    return NewMessage(payload=secrets.token_bytes(_PAYLOAD), idempotency_key=secrets.token_hex(_KEY))


async def _events(redis: Redis, url: str, environment: EnvironmentRef, count: int) -> dict[str, float]:
    """Process one message at a time, which makes the most events: one for its push, its lease and its ack."""
    broker = RedisBroker(RedisConnection(url=url), shards=1)
    queue = environment.queue("events")
    await broker.define(queue, QueueSpec(name=queue.queue))
    for _ in range(count):
        await broker.enqueue(queue, [_message()])
        (handed,) = await broker.dequeue(queue, consumer="bench")
        await broker.ack([handed.lease])
    await broker.aclose()
    return {
        **_stream(redis, QUEUE_METRIC, name="event", count=redis.xlen(stream_key("queue", 0))),
        **_stream(redis, LIFE_METRIC, name="life", count=count),
    }


def _stream(redis: Redis, metric: MetricDefinition, *, name: str, count: Any) -> dict[str, float]:
    """Bytes per event or life in a stream, and in a file of the archive."""
    key = stream_key(metric.name, 0)
    used: Any = redis.memory_usage(key, samples=0)
    return {
        f"{name}_in_a_stream": round(used / count),
        f"{name}_in_the_archive": round(len(_archived(redis, key, metric)) / count, 1),
    }


def _archived(redis: Redis, key: str, metric: MetricDefinition) -> bytes:
    reply: Any = redis.xrange(key)
    entries = entries_of([(entry_id, [*chain(*fields.items())]) for entry_id, fields in reply])
    now_ms = time.time_ns() // 1_000_000
    found = events_of(metric, entries, shard=0, at_ms=now_ms, ages=Ages.of(TierRetention()))
    return encoded(metric, found.table, ranges=[])


def _memory(redis: Redis) -> int:
    found: Any = redis.info("memory")
    return int(found["used_memory"])
