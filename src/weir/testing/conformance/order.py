"""Order: which message is delivered first, and which messages wait for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weir.broker.broker import Broker
from weir.errors import Conflict
from weir.model.message import DEFAULT_PRIORITY, Failure
from weir.model.names import QueueRef
from weir.spec.ir import Ordering
from weir.testing.clocks import ManualClock
from weir.testing.conformance.base import PLAIN, Promises, message, texts


class Order(Promises):
    async def test_an_unordered_queue_serves_high_priorities_first(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        await broker.enqueue(
            queue, [message(f"{p}{n}", priority=p) for n in ("a", "b") for p in (4, 9, 0, 5)]
        )
        assert texts(await self.take(broker, queue)) == ["9a", "9b", "5a", "5b", "4a", "4b", "0a", "0b"]

    async def test_a_message_without_a_priority_has_the_queues(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, replace(PLAIN, priority=7))
        await broker.enqueue(queue, [message("usual", priority=DEFAULT_PRIORITY), message("none")])
        await broker.enqueue(queue, [message("keyed", key="k"), message("urgent", priority=8)])
        got = await self.take(broker, queue)
        assert [(one.payload.decode(), one.priority) for one in got] == [
            ("urgent", 8), ("none", 7), ("keyed", 7), ("usual", DEFAULT_PRIORITY),
        ]  # fmt: skip

    async def test_a_new_priority_of_a_queue_is_that_of_messages_to_come(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "before")
        await broker.define(queue, replace(PLAIN, priority=0))
        await self.put(broker, queue, "after")
        got = await self.take(broker, queue)
        assert [one.priority for one in got] == [DEFAULT_PRIORITY, 0]
        await broker.dead_letter([Failure(lease=one.lease) for one in got])
        assert sorted(one.priority for one in await self.dead(broker, queue)) == [0, DEFAULT_PRIORITY]

    async def test_the_head_of_a_fifo_queue_blocks_while_it_is_leased_or_waits_for_a_retry(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, replace(PLAIN, ordering=Ordering.FIFO))
        await self.put(broker, queue, "a", "b", "c")
        (first,) = await self.take(broker, queue)
        assert await self.take(broker, queue) == []
        await broker.nack([Failure(lease=first.lease, delay_ms=1_000)])
        assert await self.take(broker, queue) == []
        manual_clock.advance(1_000)
        for name in ("a", "b", "c"):
            (got,) = await self.take(broker, queue)
            assert texts([got]) == [name]
            await broker.ack([got.lease])

    async def test_a_blocked_key_does_not_block_the_others(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, replace(PLAIN, ordering=Ordering.PER_KEY))
        await broker.enqueue(
            queue,
            [
                message("x1", key="x"),
                message("x2", key="x"),
                message("y1", key="y"),
            ],
        )
        got = await self.take(broker, queue)
        assert texts(got) == ["x1", "y1"]
        await broker.nack([Failure(lease=got[0].lease, delay_ms=500)])
        await broker.ack([got[1].lease])
        assert texts(await self.take(broker, queue)) == []
        manual_clock.advance(500)
        (retried,) = await self.take(broker, queue)
        assert (texts([retried]), retried.attempt) == (["x1"], 2)
        await broker.dead_letter([Failure(lease=retried.lease)])
        assert texts(await self.take(broker, queue)) == ["x2"]

    async def test_messages_without_a_key_do_not_wait_for_each_other(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, replace(PLAIN, ordering=Ordering.PER_KEY))
        later = message("later", deliver_at_ms=manual_clock.now_ms() + 100)
        await broker.enqueue(queue, [message("n1"), message("x1", key="x"), message("n2"), later])
        await broker.enqueue(queue, [message("n3", ttl_ms=50), message("x2", key="x")])
        got = await self.take(broker, queue, limit=3)
        assert texts(got) == ["n1", "x1", "n2"]
        await broker.nack([Failure(lease=got[0].lease, delay_ms=500)])
        manual_clock.advance(100)
        assert texts(await self.take(broker, queue)) == ["later"]
        assert [one.payload for one in await self.dead(broker, queue)] == [b"n3"]
        manual_clock.advance(500)
        (retried,) = await self.take(broker, queue)
        assert (texts([retried]), retried.attempt) == (["n1"], 2)
        await broker.ack([got[1].lease, got[2].lease])
        assert texts(await self.take(broker, queue)) == ["x2"]

    async def test_a_lapsed_message_without_a_key_does_not_hold_up_the_others(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, replace(PLAIN, ordering=Ordering.PER_KEY))
        await self.put(broker, queue, "n1", "n2")
        await self.take(broker, queue, limit=1)
        manual_clock.advance(10_000)
        assert sorted(texts(await self.take(broker, queue))) == ["n1", "n2"]

    async def test_a_delay_is_counted_from_when_the_broker_took_the_message(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await broker.enqueue(queue, [message("later", delay_ms=1_000, key="k"), message("now", delay_ms=0)])
        assert texts(await self.take(broker, queue)) == ["now"]
        manual_clock.advance(999)
        assert await self.take(broker, queue) == []
        manual_clock.advance(1)
        (got,) = await self.take(broker, queue)
        assert (got.payload, got.wait_ms, got.key) == (b"later", 0, "k")

    async def test_a_lapsed_head_keeps_its_place(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, replace(PLAIN, ordering=Ordering.FIFO))
        await self.put(broker, queue, "a", "b")
        await self.take(broker, queue)
        manual_clock.advance(10_000)
        assert texts(await self.take(broker, queue)) == ["a"]

    async def test_an_expired_head_lets_the_next_one_through(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, replace(PLAIN, ordering=Ordering.FIFO))
        await broker.enqueue(queue, [message("a", ttl_ms=100), message("b"), message("c", ttl_ms=50)])
        manual_clock.advance(100)
        (got,) = await self.take(broker, queue)
        assert texts([got]) == ["b"]
        await broker.ack([got.lease])
        assert await self.take(broker, queue) == []
        assert sorted(dead.payload for dead in await self.dead(broker, queue)) == [b"a", b"c"]

    async def test_the_ordering_of_a_queue_that_holds_messages_cannot_change(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        with pytest.raises(Conflict):
            await broker.define(queue, replace(PLAIN, ordering=Ordering.FIFO))
        await broker.define(queue, replace(PLAIN, concurrency=3))
        assert (await broker.state(queue)).limit == 3
