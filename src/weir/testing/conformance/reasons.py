"""Reasons: a message says how long it waited for what, and the parts add up to its wait."""

from __future__ import annotations

from dataclasses import replace

from weir.broker.broker import Broker
from weir.model.ids import MessageId, new_message_id
from weir.model.inspection import MessageState, WaitParts, Why
from weir.model.message import Failure
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.testing.clocks import ManualClock
from weir.testing.conformance.base import PLAIN, Promises, message
from weir.testing.conformance.looking import FIFO, KEYED


class Reasons(Promises):
    async def one(self, broker: Broker, queue: QueueRef, text: str = "a", **fields: object) -> MessageId:
        sent = message(text, **fields)
        await broker.enqueue(queue, [sent])
        return sent.id

    async def why(self, broker: Broker, queue: QueueRef, message_id: MessageId) -> Why:
        found = await broker.why(queue, message_id)
        assert found is not None
        assert found.parts.total_ms == found.until_ms - found.enqueued_at_ms - found.leased_ms
        return found

    async def test_a_message_that_nobody_asks_for_waits_unasked_after_a_second(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        message_id = await self.one(broker, queue)
        manual_clock.advance(300)
        assert (await self.why(broker, queue, message_id)).parts == WaitParts(unasked_ms=300)
        await broker.pause(queue)
        assert await self.take(broker, queue) == []
        await broker.resume(queue)
        manual_clock.advance(1_700)
        parts = (await self.why(broker, queue, message_id)).parts
        assert parts == WaitParts(unasked_ms=300 + 700, turn_ms=1_000)

    async def test_asks_of_the_environment_count_for_its_queues(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await broker.limit(queue.scope, 1)
        await self.put(broker, queue, "first")
        message_id = await self.one(broker, queue)
        (first,) = await self.take(broker, queue.scope)
        await broker.limit(queue.scope, None)
        manual_clock.advance(2_500)
        await broker.pause(queue)
        await self.take(broker, queue.scope)
        await broker.resume(queue)
        manual_clock.advance(400)
        await broker.ack([first.lease])
        parts = (await self.why(broker, queue, message_id)).parts
        assert parts == WaitParts(unasked_ms=1_500, turn_ms=1_000 + 400)

    async def test_the_first_reason_that_holds_counts(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        """Paused, then the queue's limit, then the environment's, then nobody asking."""
        await broker.define(queue, replace(PLAIN, concurrency=1))
        await self.put(broker, queue, "first")
        message_id = await self.one(broker, queue)
        (first,) = await self.take(broker, queue, lease_ms=600_000)
        manual_clock.advance(1_100)
        await broker.limit(queue.scope, 1)
        manual_clock.advance(100)
        await broker.pause(queue)
        manual_clock.advance(2_000)
        await broker.resume(queue)
        manual_clock.advance(10)
        await broker.define(queue, replace(PLAIN, concurrency=5))
        manual_clock.advance(5_000)
        await broker.ack([first.lease])
        manual_clock.advance(7)
        (got,) = await self.take(broker, queue)
        assert got.message_id == message_id
        manual_clock.advance(50)
        why = await self.why(broker, queue, message_id)
        assert (why.state, why.leased_ms, why.until_ms) == (
            MessageState.LEASED,
            0,
            manual_clock.now_ms() - 50,
        )
        assert why.parts == WaitParts(
            queue_limit_ms=1_110 + 100, paused_ms=2_000, environment_limit_ms=5_000, unasked_ms=7
        )

    async def test_times_of_its_own_come_before_those_of_its_queue(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        """Scheduled, in line, leased, backing off, in line, lapsed: each attempt adds to the parts."""
        await broker.define(queue, PLAIN)
        await broker.pause(queue)
        message_id = await self.one(broker, queue, delay_ms=1_000)
        manual_clock.advance(1_500)
        assert (await self.why(broker, queue, message_id)).parts == WaitParts(
            scheduled_ms=1_000, paused_ms=500
        )
        await broker.resume(queue)
        (got,) = await self.take(broker, queue)
        manual_clock.advance(250)
        await broker.nack([Failure(lease=got.lease, delay_ms=2_000)])
        manual_clock.advance(700)
        why = await self.why(broker, queue, message_id)
        assert (why.state, why.leased_ms) == (MessageState.RETRYING, 250)
        assert why.parts == WaitParts(scheduled_ms=1_000, paused_ms=500, backoff_ms=700)
        manual_clock.advance(1_300 + 40)
        (got,) = await self.take(broker, queue, lease_ms=5_000)
        manual_clock.advance(6_000)
        await broker.sweep(shard_of(queue.scope, shards=broker.shards))
        manual_clock.advance(5)
        why = await self.why(broker, queue, message_id)
        assert (why.state, why.leased_ms) == (MessageState.READY, 5_250)
        expected = WaitParts(scheduled_ms=1_000, paused_ms=500, backoff_ms=2_000, unasked_ms=40 + 1_005)
        assert why.parts == expected

    async def test_a_blocked_message_names_its_head_until_it_is_one(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, KEYED)
        first, second, third = [await self.one(broker, queue, key="k") for _ in range(3)]
        manual_clock.advance(100)
        (got,) = await self.take(broker, queue)
        manual_clock.advance(200)
        why = await self.why(broker, queue, second)
        assert (why.state, why.behind_id, why.parts) == (
            MessageState.BLOCKED,
            first,
            WaitParts(blocked_ms=300),
        )
        await broker.ack([got.lease])
        manual_clock.advance(50)
        (got,) = await self.take(broker, queue)
        assert (await self.why(broker, queue, second)).parts == WaitParts(blocked_ms=300, turn_ms=50)
        await broker.nack([Failure(lease=got.lease, delay_ms=400)])
        manual_clock.advance(430)
        (got,) = await self.take(broker, queue)
        parts = (await self.why(broker, queue, second)).parts
        assert parts == WaitParts(blocked_ms=300, turn_ms=50 + 30, backoff_ms=400)
        assert (await self.why(broker, queue, third)).behind_id == second

    async def test_a_message_that_was_moved_keeps_its_parts(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        message_id = await self.one(broker, queue)
        manual_clock.advance(10)
        await broker.change_priority(queue, [message_id], 9)
        manual_clock.advance(20)
        await broker.reschedule(queue, [message_id], delay_ms=5_000)
        manual_clock.advance(300)
        await broker.run_now(queue, [message_id])
        manual_clock.advance(4)
        parts = (await self.why(broker, queue, message_id)).parts
        assert parts == WaitParts(unasked_ms=10 + 20 + 4, scheduled_ms=300)

    async def test_a_postponed_head_lets_the_others_wait_behind_it(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, FIFO)
        first, second = [await self.one(broker, queue) for _ in range(2)]
        await broker.reschedule(queue, [first], delay_ms=800)
        manual_clock.advance(900)
        why = await self.why(broker, queue, second)
        assert (why.behind_id, why.parts) == (first, WaitParts(blocked_ms=900))
        assert (await self.why(broker, queue, first)).parts == WaitParts(scheduled_ms=800, unasked_ms=100)
        await broker.cancel(queue, [first])
        manual_clock.advance(6)
        assert (await self.why(broker, queue, second)).parts == WaitParts(blocked_ms=900, unasked_ms=6)

    async def test_one_queue_at_the_limit_of_the_environment_holds_up_the_others(
        self, broker: Broker, environment: EnvironmentRef, manual_clock: ManualClock
    ) -> None:
        busy, idle = environment.queue("busy"), environment.queue("idle")
        for queue in (busy, idle):
            await broker.define(queue, PLAIN)
        await broker.limit(environment, 2)
        await self.put(broker, busy, *"abc")
        message_id = await self.one(broker, idle)
        got = await self.take(broker, busy)
        for _ in range(3):
            manual_clock.advance(100)
            await broker.ack([got.pop().lease])
            manual_clock.advance(30)
            got += await self.take(broker, busy, limit=1)
            if len(got) < 2:
                break
        parts = (await self.why(broker, idle, message_id)).parts
        assert parts == WaitParts(environment_limit_ms=200, unasked_ms=60)

    async def test_a_span_without_asks_of_the_environment_is_known_afterwards(
        self, broker: Broker, environment: EnvironmentRef, manual_clock: ManualClock
    ) -> None:
        """The first ask serves another queue, and nobody touches this one until the second."""
        busy, idle = environment.queue("busy"), environment.queue("idle")
        for queue in (busy, idle):
            await broker.define(queue, PLAIN)
        await self.put(broker, busy, *"ab")
        message_id = await self.one(broker, idle)
        assert [one.queue for one in await self.take(broker, environment, limit=1)] == [busy]
        manual_clock.advance(4_000)
        assert [one.queue for one in await self.take(broker, environment, limit=1)] == [idle]
        parts = (await self.why(broker, idle, message_id)).parts
        assert parts == WaitParts(turn_ms=1_000, unasked_ms=3_000)

    async def test_what_is_gone_has_no_reason(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        assert await broker.why(queue, new_message_id()) is None
