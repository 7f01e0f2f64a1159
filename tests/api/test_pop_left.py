"""A consumer that leaves its long poll costs the messages that were on their way to it nothing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from weir.api.routes.pop import _wait_until_taken
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.spec.ir import DeliveryPolicy, QueueSpec
from weir.testing.memory import MemoryBroker


async def test_messages_of_a_consumer_that_left_were_not_tried(environment: EnvironmentRef) -> None:
    broker, queue = MemoryBroker(), environment.queue("work")
    await broker.define(queue, QueueSpec(name="work", delivery=DeliveryPolicy(max_attempts=1)))
    await broker.enqueue(queue, [NewMessage(payload=b"x")])

    async def leave() -> None:
        """The consumer is gone when its messages are there."""

    services = SimpleNamespace(broker=broker, stopping=asyncio.Event())
    call = cast(Any, SimpleNamespace(services=services, wait_for_disconnect=leave))
    for _ in range(3):
        taking = broker.dequeue(queue, consumer="c", wait_ms=1_000)
        assert await _wait_until_taken(call, taking, asyncio.Event()) == []
    (got,) = await broker.dequeue(queue, consumer="c", wait_ms=1_000)
    assert got.attempt == 1
