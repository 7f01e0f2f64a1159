"""Appends events as the broker's scripts do, at the rate that a bench asks for.

Events are packed by hand here, which takes 6 us each. With the codec and the commands of the driver an event
took 45 us, and a million events took about the minute after which Spark ends idle workers.
"""

from __future__ import annotations

import random
import struct
import time
from dataclasses import dataclass
from typing import Any

from redis import Redis

from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.telemetry.events import QUEUE, STREAM_FIELD
from weir.telemetry.streams import stream_key

ENVIRONMENTS = 64
_COUNTERS = ("enqueued", "dequeued", "acked")


_HEADER = struct.Struct(QUEUE.layout.struct_format)
_SAMPLE = struct.Struct("<I")
# The version is the first number, then come the fields, and then the number of samples.
_PLACES = {field.name: 1 + at for at, field in enumerate(QUEUE.fields)}
_SAMPLES = 1 + len(QUEUE.fields)


@dataclass(slots=True, kw_only=True)
class BenchQueue:
    key: bytes
    numbers: list[int]
    """The numbers of a header, with the odometers of the newest event."""
    names: bytes


class Producer:
    """Appends events of many queues, with odometers that agree with their counts."""

    def __init__(self, redis: Redis, *, queues: int, shards: int, prefix: str = "queue") -> None:
        self._redis = redis
        self._random = random.Random(1)
        self._queues = [_queue(f"{prefix}:{number}", number, shards) for number in range(queues)]
        self._next = 0
        self.events = 0

    def produce(self, count: int, *, batch: int = 1_000) -> None:
        """Append this many events as fast as Redis takes them."""
        for start in range(0, count, batch):
            self._append([self._event() for _ in range(min(batch, count - start))])
        self.events += count

    def _append(self, events: list[tuple[bytes, bytes]]) -> None:
        pool = self._redis.connection_pool
        # The driver has no types here.
        connection: Any = pool.get_connection()
        try:
            connection.send_packed_command([b"".join(_command(key, packed) for key, packed in events)])
            for _ in events:
                connection.read_response()
        finally:
            pool.release(connection)

    def produce_at(self, rate: int, *, seconds: float, tick_s: float = 0.02) -> None:
        """Append at a steady rate."""
        began, sent = time.monotonic(), 0
        while (elapsed := time.monotonic() - began) < seconds:
            due = int(elapsed * rate) - sent
            if due > 0:
                self.produce(due)
                sent += due
            time.sleep(tick_s)

    def _event(self) -> tuple[bytes, bytes]:
        queue = self._queues[self._next % len(self._queues)]
        counter = _COUNTERS[self._next // len(self._queues) % len(_COUNTERS)]
        self._next += 1
        numbers = queue.numbers
        numbers[_PLACES[f"{counter}_total"]] += 1
        for name in _COUNTERS:
            numbers[_PLACES[name]] = 1 if name == counter else 0
        numbers[_PLACES["queue_length"]] = self._next % 997
        numbers[_PLACES["running"]] = self._next % 7
        numbers[_PLACES["oldest_age_ms"]] = self._next % 60_000
        numbers[_SAMPLES] = 1 if counter == "dequeued" else 0
        waits = _SAMPLE.pack(int(self._random.random() * 30_000)) if counter == "dequeued" else b""
        return queue.key, _HEADER.pack(*numbers) + queue.names + waits


def _command(key: bytes, packed: bytes) -> bytes:
    words = (b"XADD", key, b"*", STREAM_FIELD.encode(), packed)
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _queue(name: str, number: int, shards: int) -> BenchQueue:
    environment = EnvironmentRef(
        organization="bench", project="pipeline", environment=f"env-{number % ENVIRONMENTS}"
    )
    names = [part.encode() for part in (environment.organization, environment.project)]
    names += [environment.environment.encode(), name.encode()]
    lengths = [*(0 for _ in QUEUE.texts), *map(len, names)]
    return BenchQueue(
        key=stream_key("queue", shard_of(environment, shards=shards)).encode(),
        numbers=[QUEUE.version, *(0 for _ in QUEUE.fields), 0, *lengths],
        names=b"".join(names),
    )
