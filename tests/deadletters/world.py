"""A small world for tests of dead letters: a memory broker, a real PostgreSQL, and ways to die in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from weir.broker.broker import Broker
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.deadletters.audit import DeadLetterAuditor
from weir.deadletters.bulk_action_runner import BulkActionRunner
from weir.deadletters.bulk_action_store import BulkActionStore
from weir.deadletters.bulk_actions import BulkAction, NewBulkAction
from weir.deadletters.copier import DeadLetterCopier
from weir.deadletters.dead_letter import DeadLetter, read_letters
from weir.deadletters.mover import Mover
from weir.deadletters.rates import SendLimits
from weir.deadletters.retention import DeadLetterRetention
from weir.deadletters.store import DeadLetterStore
from weir.model.ids import MessageId
from weir.model.message import Failure, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, QueueSpec, Retention
from weir.testing.clocks import ManualClock
from weir.testing.memory import MemoryBroker

LIMITS = tuple(one.name for one in fields(SendLimits))
DELIVERY = ("max_attempts", "dead_letter_queue")
RETENTION = ("max_depth", "max_age_ms")
COUNT = """
SELECT c.queue, count(l.id) FILTER (WHERE l.replayed_at_ms IS NULL) AS n FROM weir.consumers AS c
LEFT JOIN weir.dead_letters AS l USING (consumer_key)
WHERE c.environment = %s GROUP BY c.queue
"""
SUMMARY = "SELECT queue, dead_count AS n FROM weir.dlq_summary WHERE environment = %s"
GROUPS = """
SELECT g.group_key, g.dead_count, count(l.id) AS n FROM weir.dead_letter_groups AS g
JOIN weir.consumers AS c USING (consumer_key)
LEFT JOIN weir.dead_letters AS l ON l.group_key = g.group_key AND l.replayed_at_ms IS NULL
WHERE c.environment = %s GROUP BY g.group_key, g.dead_count
"""


def with_limits(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a bulk action, with rate and canary in the value that holds them."""
    limits = {name: value for name, value in options.items() if name in LIMITS}
    others = {name: value for name, value in options.items() if name not in LIMITS}
    return {**others, "limits": SendLimits(**limits)}


@dataclass
class World:
    database: Database
    environment: EnvironmentRef
    clock: Any = field(default_factory=ManualClock)
    """It moves when it is told to, unless a test brings another."""
    shards: int = 2
    server: Broker | None = None
    """A broker on a real server; without one, the memory broker."""

    def __post_init__(self) -> None:
        self.broker: Broker = self.server or MemoryBroker(shards=self.shards, clock=self.clock)
        self.mover = Mover(self.broker, self.database, clock=self.clock)
        self.bulk_actions = BulkActionStore(self.database, self.broker, clock=self.clock)
        self.runner = BulkActionRunner(self.broker, self.database, clock=self.clock)
        self.letters = DeadLetterStore(self.database, self.broker, clock=self.clock)
        self.copier = DeadLetterCopier(self.broker, self.database)
        self.retention = DeadLetterRetention(self.broker, self.database, interval_s=1)
        self.auditor = DeadLetterAuditor(self.database, clock=self.clock)

    @property
    def shard(self) -> int:
        return shard_of(self.environment, shards=self.shards)

    async def define(self, name: str, **options: Any) -> QueueRef:
        """Define a queue in the broker, and in PostgreSQL as the API does."""
        queue = self.environment.queue(name)
        delivery = {part: options.pop(part) for part in DELIVERY if part in options}
        retention = {part: options.pop(part) for part in RETENTION if part in options}
        spec = QueueSpec(
            name=name,
            delivery=DeliveryPolicy(**{"max_attempts": 1, **delivery}),
            retention=Retention(**retention),
            **options,
        )
        await QueueDefinitions(self.database).define(queue, spec)
        await self.broker.define(queue, spec)
        return queue

    async def push(self, queue: QueueRef, *payloads: Any, key: str | None = None) -> list[MessageId]:
        messages = [NewMessage(payload=json.dumps(payload).encode(), key=key) for payload in payloads]
        return [enqueued.message_id for enqueued in await self.broker.enqueue(queue, messages)]

    async def die(self, queue: QueueRef, *, limit: int = 100, error: str = "boom 42") -> list[MessageId]:
        """Hand messages out and let their handlers fail until the last attempt is used up."""
        deliveries = await self.broker.dequeue(queue, consumer="test", limit=limit)
        failures = [Failure(lease=delivery.lease, error=error) for delivery in deliveries]
        await self.broker.nack(failures)
        return [delivery.message_id for delivery in deliveries]

    async def kill(self, queue: QueueRef, *payloads: Any, error: str = "boom 42") -> list[MessageId]:
        """Push messages, let them die and carry them off."""
        ids = await self.push(queue, *payloads)
        await self.die(queue, error=error, limit=len(payloads))
        await self.move()
        return ids

    async def move(self) -> None:
        while await self.mover.run_round():
            pass

    async def start(self, new: NewBulkAction) -> BulkAction:
        return await self.bulk_actions.create(self.environment, new, by="test")

    async def work(self, action: BulkAction, *, steps: int = 1000) -> BulkAction:
        """Step a action until it is over or waits for something."""
        for _ in range(steps):
            stepped = await self.runner.step(action.id)
            if stepped is None or stepped.state.over:
                break
        return await self.bulk_actions.find(self.environment, action.id)

    async def newest(self, queue: QueueRef, **options: Any) -> list[DeadLetter]:
        """The letters of a page of a queue."""
        return list((await self.letters.newest(queue, **options)).letters)

    async def letters_of(self, ids: Sequence[str]) -> list[DeadLetter]:
        return await read_letters(self.database, ids)

    async def rows(self, sql: str) -> list[Any]:
        async with self.database.connection() as connection:
            cursor = await connection.execute(sql, (self.environment.environment,))
            return list(await cursor.fetchall())

    async def counts(self) -> dict[str, int]:
        return {row["queue"]: row["n"] for row in await self.rows(COUNT)}

    async def summary(self) -> dict[str, int]:
        return {row["queue"]: row["n"] for row in await self.rows(SUMMARY)}

    async def check_exact(self) -> None:
        assert await self.summary() == await self.counts()
        assert [row for row in await self.rows(GROUPS) if row["dead_count"] != row["n"]] == []

    async def waiting(self, queue: QueueRef) -> list[bytes]:
        """The payloads that a queue hands out now, in order."""
        deliveries = await self.broker.dequeue(queue, consumer="test", limit=1000)
        return [delivery.payload for delivery in deliveries]


def numbers(payloads: Sequence[bytes]) -> list[int]:
    return [json.loads(payload)["n"] for payload in payloads]
