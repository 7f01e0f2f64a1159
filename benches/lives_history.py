"""One random history of a few queues, driven through the Redis broker and the memory broker alike."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from uuid import uuid4

from weir.broker.redis import RedisBroker
from weir.model.ids import MessageId
from weir.model.inspection import Touched
from weir.model.message import Delivery, Failure, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec
from weir.testing.clocks import ManualClock
from weir.testing.memory import MemoryBroker

_DELIVERY = DeliveryPolicy(max_attempts=50, lease_ms=4_000, initial_backoff_ms=300, max_backoff_ms=3_000)
# All names have one length: queues whose turn is equal are taken by their idents, which begin with a length.
SPECS = {
    "plain": QueueSpec(name="plain", delivery=_DELIVERY),
    "bound": QueueSpec(name="bound", delivery=_DELIVERY, concurrency=3),
    "keyed": QueueSpec(name="keyed", delivery=_DELIVERY, ordering=Ordering.PER_KEY),
}
_CHANCES = {
    "enqueue": 6,
    "dequeue": 10,
    "ack": 6,
    "nack": 4,
    "die": 1,
    "pause": 2,
    "resume": 3,
    "limit": 2,
    "move": 2,
    "sweep": 2,
}


@dataclass(slots=True)
class Compared:
    """The differences between the two brokers about the waits of messages."""

    messages: int = 0
    worst_ms: int = 0
    """The largest difference of any single part."""
    unknown_ms: int = 0
    """Wait that the clocks could not explain; no other part may then be larger than in the full log."""
    waited_ms: int = 0


@dataclass(slots=True)
class History:
    """Random steps through both brokers, which share one clock."""

    redis: RedisBroker
    clock: ManualClock
    chance: random.Random
    found: Compared
    environment: EnvironmentRef = field(
        default_factory=lambda: EnvironmentRef(organization=uuid4().hex, project="p", environment="e")
    )
    held: list[tuple[Delivery, Delivery]] = field(default_factory=list)
    model: MemoryBroker = field(init=False)

    def __post_init__(self) -> None:
        self.model = MemoryBroker(clock=self.clock, chance=lambda: 0.0)

    async def run(self, steps: int) -> None:
        for name, spec in SPECS.items():
            await self._both("define", self.environment.queue(name), spec)
        for _ in range(steps):
            (step,) = self.chance.choices(list(_CHANCES), weights=list(_CHANCES.values()))
            await getattr(self, step)()
            self.clock.advance(self.chance.choice((0, 0, 1, 7, 60, 400, 1_300)))
        await self._drain()

    async def _both(self, verb: str, *args: Any, **options: Any) -> tuple[Any, Any]:
        model = await getattr(self.model, verb)(*args, **options)
        return model, await getattr(self.redis, verb)(*args, **options)

    def _queue(self) -> QueueRef:
        return self.environment.queue(self.chance.choice(list(SPECS)))

    async def enqueue(self) -> None:
        delay_ms = self.chance.choice((None, None, None, 200, 1_500))
        messages = [
            NewMessage(payload=b"x", key=self.chance.choice("abc"), delay_ms=delay_ms)
            for _ in range(self.chance.randint(1, 8))
        ]
        await self._both("enqueue", self._queue(), messages)

    async def dequeue(self) -> None:
        source = self.environment if self.chance.random() < 0.3 else self._queue()
        handed = await self._both("dequeue", source, consumer="c", limit=self.chance.randint(1, 6))
        if [one.message_id for one in handed[0]] != [one.message_id for one in handed[1]]:
            raise AssertionError(f"the brokers handed out different messages: {handed}")
        self.held += zip(*handed, strict=True)

    def _some_held(self) -> list[tuple[Delivery, Delivery]]:
        self.chance.shuffle(self.held)
        taken = self.held[: self.chance.randint(1, 5)]
        del self.held[: len(taken)]
        return taken

    async def ack(self) -> None:
        """Ack some messages, after comparing what both brokers say about their waits."""
        taken = self._some_held()
        for model, _ in taken:
            await self._compare(model.queue, model.message_id)
        await self.model.ack([one.lease for one, _ in taken])
        await self.redis.ack([one.lease for _, one in taken])

    async def nack(self) -> None:
        taken = self._some_held()
        await self.model.nack([Failure(lease=one.lease, delay_ms=700) for one, _ in taken])
        await self.redis.nack([Failure(lease=one.lease, delay_ms=700) for _, one in taken])

    async def die(self) -> None:
        """Forget some deliveries, as if their workers were killed, so that their leases lapse."""
        self._some_held()

    async def pause(self) -> None:
        await self._both("pause", self._queue())

    async def resume(self) -> None:
        for name in SPECS:
            await self._both("resume", self.environment.queue(name))

    async def limit(self) -> None:
        await self._both("limit", self.environment, self.chance.choice((None, 2, 4, 8)))

    async def move(self) -> None:
        queue = self._queue()
        waiting = sorted(self.model._queues[queue].entries)
        if waiting:
            one = MessageId(self.chance.choice(waiting))
            verb, options = self.chance.choice(
                [("run_now", {}), ("reschedule", {"delay_ms": 900}), ("run_now", {})]
            )
            model, redis = await self._both(verb, queue, [one], **options)
            if model != redis or not all(isinstance(answer, Touched) for answer in redis):
                raise AssertionError(f"the brokers answered differently: {model}, {redis}")

    async def sweep(self) -> None:
        await self._both("sweep", shard_of(self.environment, shards=4))

    async def _drain(self) -> None:
        """Dequeue and ack all messages that are left."""
        await self.limit_off()
        await self.resume()
        for _ in range(1_000):
            for name in SPECS:
                source = self.environment.queue(name)
                handed = await self._both("dequeue", source, consumer="c", limit=100)
                self.held += zip(*handed, strict=True)
            while self.held:
                await self.ack()
            if not any(model.entries for model in self.model._queues.values()):
                return
            self.clock.advance(1_000)
        raise AssertionError("the queues did not drain")

    async def limit_off(self) -> None:
        await self._both("limit", self.environment, None)

    async def _compare(self, queue: QueueRef, message_id: MessageId) -> None:
        model, redis = await self._both("why", queue, message_id)
        if model is None or redis is None:
            if model is not redis:
                raise AssertionError(f"one broker alone knows `{message_id}`")
            return
        if replace(model, parts=redis.parts) != redis or model.parts.total_ms != redis.parts.total_ms:
            raise AssertionError(f"the brokers differ about the wait of `{message_id}`: {model}, {redis}")
        said, known = asdict(redis.parts), asdict(model.parts)
        unknown = said.pop("unknown_ms")
        known.pop("unknown_ms")
        # Unknown time may belong to any part.
        differences = [said[part] - known[part] for part in said]
        worst = max(abs(one) for one in differences) if unknown == 0 else max(differences)
        self.found.messages += 1
        self.found.worst_ms = max(self.found.worst_ms, worst)
        self.found.unknown_ms += unknown
        self.found.waited_ms += redis.parts.total_ms
