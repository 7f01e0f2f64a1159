"""Events as the broker's scripts append them, at the rate that a bench asks for."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from redis import Redis

from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.telemetry.codec import MetricEvent, pack
from weir.telemetry.events import QUEUE, STREAM_FIELD
from weir.telemetry.streams import stream_key

ENVIRONMENTS = 64
_COUNTERS = ("enqueued", "dequeued", "acked")


@dataclass(slots=True, kw_only=True)
class BenchQueue:
    names: tuple[str, str, str, str]
    key: str
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTERS, 0))


class Producer:
    """Appends events of many queues, with odometers that agree with their counts."""

    def __init__(self, redis: Redis, *, queues: int, shards: int, prefix: str = "queue") -> None:
        self._redis = redis
        self._random = random.Random(1)
        self._queues = [_queue(f"{prefix}:{number}", number, shards) for number in range(queues)]
        self._next = 0
        self.events = 0

    def produce(self, count: int, *, batch: int = 1_000) -> None:
        """Append so many events as fast as Redis takes them."""
        for start in range(0, count, batch):
            pipeline = self._redis.pipeline(transaction=False)
            for _ in range(min(batch, count - start)):
                key, packed = self._event()
                pipeline.xadd(key, {STREAM_FIELD: packed})
            pipeline.execute()
        self.events += count

    def produce_at(self, rate: int, *, seconds: float, tick_s: float = 0.02) -> None:
        """Append at a steady rate."""
        began, sent = time.monotonic(), 0
        while (elapsed := time.monotonic() - began) < seconds:
            due = int(elapsed * rate) - sent
            if due > 0:
                self.produce(due)
                sent += due
            time.sleep(tick_s)

    def _event(self) -> tuple[str, bytes]:
        queue = self._queues[self._next % len(self._queues)]
        counter = _COUNTERS[self._next // len(self._queues) % len(_COUNTERS)]
        self._next += 1
        queue.totals[counter] += 1
        values = {
            counter: 1,
            "queue_length": self._next % 997,
            "running": self._next % 7,
            "oldest_age_ms": self._next % 60_000,
            **{f"{name}_total": total for name, total in queue.totals.items()},
        }
        waits = (self._random.randrange(30_000),) if counter == "dequeued" else ()
        return queue.key, pack(QUEUE, MetricEvent(dimensions=queue.names, values=values, samples=waits))


def _queue(name: str, number: int, shards: int) -> BenchQueue:
    environment = EnvironmentRef(
        organization="bench", project="pipeline", environment=f"env-{number % ENVIRONMENTS}"
    )
    names = (environment.organization, environment.project, environment.environment, name)
    return BenchQueue(names=names, key=stream_key("queue", shard_of(environment, shards=shards)))
