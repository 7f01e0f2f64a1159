"""Events as the broker's scripts would append them, with an exact account of what they add up to."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from redis import Redis

from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.telemetry.codec import MetricEvent, pack
from weir.telemetry.events import QUEUE, QUEUE_COUNTERS, STREAM_FIELD, QueueOperation
from weir.telemetry.streams import stream_key

OPERATIONS = (
    (QueueOperation.ENQUEUE, "enqueued"),
    (QueueOperation.DEQUEUE, "dequeued"),
    (QueueOperation.ACK, "acked"),
    (QueueOperation.NACK, "nacked"),
)


class Emission:
    """Appends queue events to the streams and remembers counts, odometers and waits."""

    def __init__(
        self,
        url: str,
        *,
        shards: int = 2,
        queues: int = 20,
        environments: int = 4,
        seed: int = 7,
        wait: Callable[[QueueRef], int] | None = None,
    ) -> None:
        self.redis = Redis.from_url(url)
        self.shards = shards
        self.odometers: dict[QueueRef, Counter[str]] = {}
        self.counted: Counter[str] = Counter()
        self.waits: list[int] = []
        self.waits_of: dict[QueueRef, list[int]] = {}
        self.events = 0
        self._random = random.Random(seed)
        self._wait = wait or (lambda _: self._random.randrange(10_000))
        self._queues = [
            EnvironmentRef(
                organization="acme: *", project="main", environment=f"env {number % environments} ✓"
            ).queue(f"queue:{number}")
            for number in range(queues)
        ]

    def emit(self, count: int, *, batch: int = 2_000) -> None:
        """Append `count` events of random queues and operations."""
        for start in range(0, count, batch):
            pipeline = self.redis.pipeline(transaction=False)
            for _ in range(min(batch, count - start)):
                queue = self._random.choice(self._queues)
                key = stream_key("queue", shard_of(queue.scope, shards=self.shards))
                pipeline.xadd(key, {STREAM_FIELD: self._event(queue)})
            pipeline.execute()

    def stream(self, queue: QueueRef) -> str:
        return stream_key("queue", shard_of(queue.scope, shards=self.shards))

    def _event(self, queue: QueueRef) -> bytes:
        operation, counter = self._random.choice(OPERATIONS)
        amount = self._random.randint(1, 5)
        waits = tuple(self._wait(queue) for _ in range(amount)) if counter == "dequeued" else ()
        totals = self.odometers.setdefault(queue, Counter())
        totals[counter] += amount
        self.counted[counter] += amount
        self.waits.extend(waits)
        self.waits_of.setdefault(queue, []).extend(waits)
        self.events += 1
        values = {
            "operation": list(QueueOperation).index(operation),
            counter: amount,
            "queue_length": self._random.randrange(1_000),
            "running": self._random.randrange(10),
            **{f"{name}_total": totals[name] for name in QUEUE_COUNTERS},
        }
        names = (queue.organization, queue.project, queue.environment, queue.queue)
        return pack(QUEUE, MetricEvent(dimensions=names, values=values, samples=waits))
