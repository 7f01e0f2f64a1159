"""Names and numbers: accepted values come back exactly, and others are refused with a clear error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from weir.broker.broker import Broker
from weir.errors import InvalidInput, NotFound, TooLarge
from weir.model.limits import MAX_DELAY_MS
from weir.model.message import NewMessage, Settlement
from weir.model.names import EnvironmentRef, QueueRef
from weir.testing.conformance.base import PLAIN, Promises, message


class Refusals(Promises):
    async def test_an_unknown_queue_is_not_found(self, broker: Broker, queue: QueueRef) -> None:
        with pytest.raises(NotFound):
            await broker.enqueue(queue, [message("a")])
        with pytest.raises(NotFound):
            await self.take(broker, queue)
        for verb in (broker.pause, broker.resume, broker.state):
            with pytest.raises(NotFound):
                await verb(queue)
        assert await self.take(broker, queue.scope) == []

    @pytest.mark.parametrize(
        "name", ["a:b", "{x}", "*", "🦫", "..", "é", "e\u0301", "%", "a b", "'\"", "x" * 255, "ß" * 127]
    )
    async def test_any_legal_name_is_kept_apart_and_comes_back_exactly(
        self, broker: Broker, environment: EnvironmentRef, name: str
    ) -> None:
        queue = replace(environment, environment=name).queue(name)
        decoy = replace(environment, environment=name).queue(name[:-1] or "-")
        for one in (queue, decoy):
            await broker.define(one, PLAIN)
        await self.put(broker, queue, "a", key=name, idempotency_key=name)
        assert await self.take(broker, decoy) == []
        (got,) = await broker.dequeue(queue, consumer=name)
        assert (got.queue, got.key, got.idempotency_key) == (queue, name, name)
        assert await broker.ack([got.lease]) == [Settlement.DONE]

    @pytest.mark.parametrize("size", [0, 1, 1 << 20])
    async def test_payloads_of_any_size_up_to_the_limit_pass(
        self, broker: Broker, queue: QueueRef, size: int
    ) -> None:
        await broker.define(queue, PLAIN)
        payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        await broker.enqueue(queue, [NewMessage(payload=payload)])
        (got,) = await self.take(broker, queue)
        assert got.payload == payload

    @pytest.mark.parametrize(
        ("bad", "error"),
        [
            ({"payload": b"x" * ((1 << 20) + 1)}, TooLarge),
            ({"payload": "text"}, InvalidInput),
            ({"priority": 10}, InvalidInput),
            ({"idempotency_window_ms": 1_000}, InvalidInput),
            ({"idempotency_key": "k", "idempotency_window_ms": 0}, InvalidInput),
            ({"delay_ms": -1}, InvalidInput),
            ({"delay_ms": MAX_DELAY_MS + 1}, InvalidInput),
            ({"delay_ms": 1, "deliver_at_ms": 1}, InvalidInput),
            ({"priority": -1}, InvalidInput),
            ({"priority": True}, InvalidInput),
            ({"ttl_ms": 0}, InvalidInput),
            ({"ttl_ms": 1 << 70}, InvalidInput),
            ({"deliver_at_ms": -1}, InvalidInput),
            ({"deliver_at_ms": 1 << 60}, InvalidInput),
            ({"key": ""}, InvalidInput),
            ({"key": "a\x00b"}, InvalidInput),
            ({"key": "x" * 256}, InvalidInput),
            ({"key": "\ud800"}, InvalidInput),
            ({"idempotency_key": "a\nb"}, InvalidInput),
            ({"headers": {"a": 1}}, InvalidInput),
            ({"headers": {"a": "x" * 70_000}}, TooLarge),
            ({"id": "not an id"}, InvalidInput),
        ],
    )
    async def test_a_bad_message_is_refused_and_nothing_of_its_batch_enters(
        self, broker: Broker, queue: QueueRef, bad: dict[str, Any], error: type[Exception]
    ) -> None:
        await broker.define(queue, PLAIN)
        with pytest.raises(error):
            await broker.enqueue(queue, [message("good"), NewMessage(**{"payload": b"x", **bad})])
        assert (await broker.state(queue)).depth == 0

    async def test_bad_numbers_and_names_are_refused(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        bad: list[dict[str, Any]] = [
            {"limit": 0},
            {"limit": 1_001},
            {"limit": -1},
            {"lease_ms": 0},
            {"lease_ms": 1 << 50},
            {"wait_ms": -1},
            {"consumer": ""},
            {"consumer": "a\x07"},
        ]
        for options in bad:
            with pytest.raises(InvalidInput):
                await broker.dequeue(queue, **{"consumer": "tester", **options})
        with pytest.raises(InvalidInput):
            await broker.limit(queue.scope, 0)
        with pytest.raises(InvalidInput):
            await broker.sweep(broker.shards)
        with pytest.raises(InvalidInput):
            await broker.define(queue, replace(PLAIN, concurrency=-1))
        with pytest.raises(TooLarge):
            await broker.enqueue(queue, [message("a")] * 1_001)
