"""The base of the conformance tests: a queue, and short methods to put messages in and take them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from weir.broker.broker import Broker
from weir.model.message import Delivery, Enqueue, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, QueueSpec

PLAIN = QueueSpec(name="work", delivery=DeliveryPolicy(max_attempts=3, lease_ms=10_000))


def texts(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.payload.decode() for delivery in deliveries]


def message(text: str, **fields: Any) -> NewMessage:
    return NewMessage(payload=text.encode(), **fields)


class Promises:
    """A group of promises; subclasses are its tests."""

    @pytest.fixture
    def queue(self, environment: EnvironmentRef) -> QueueRef:
        return environment.queue("work")

    async def put(self, broker: Broker, queue: QueueRef, *names: str, **fields: Any) -> None:
        answers = await broker.enqueue(queue, [message(name, **fields) for name in names])
        assert [answer.outcome for answer in answers] == [Enqueue.ACCEPTED] * len(names)

    async def take(self, broker: Broker, source: Any, limit: int = 10, **options: Any) -> list[Delivery]:
        return await broker.dequeue(source, consumer="tester", limit=limit, **options)

    async def dead(self, broker: Broker, queue: QueueRef) -> list[Any]:
        found = await broker.take_dead(shard_of(queue.scope, shards=broker.shards))
        return [one for one in found if one.queue == queue]
