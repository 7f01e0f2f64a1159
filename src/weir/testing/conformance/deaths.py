"""Retries and death: how long a failed message waits, and when it becomes a dead letter."""

from __future__ import annotations

from dataclasses import replace

from weir.broker.broker import Broker
from weir.model.ids import new_message_id
from weir.model.inspection import MessageState
from weir.model.message import DeathReason, Failure, Settlement
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, QueueSpec
from weir.testing.clocks import ManualClock
from weir.testing.conformance.base import PLAIN, Promises, message


class Deaths(Promises):
    async def test_back_off_doubles_from_the_initial_delay_up_to_the_cap(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        policy = DeliveryPolicy(max_attempts=5, initial_backoff_ms=1_000, max_backoff_ms=3_000)
        await broker.define(queue, QueueSpec(name="work", delivery=policy))
        await self.put(broker, queue, "a")
        for delay in (1_000, 2_000, 3_000, 3_000):
            (got,) = await self.take(broker, queue)
            assert await broker.nack([Failure(lease=got.lease, error="boom")]) == [Settlement.DONE]
            manual_clock.advance(delay - 1)
            assert await self.take(broker, queue) == []
            manual_clock.advance(1)
        (last,) = await self.take(broker, queue)
        assert (last.attempt, last.last_error) == (5, "boom")
        assert await broker.nack([Failure(lease=last.lease, error="end")]) == [Settlement.DEAD]

    async def test_a_message_dies_after_its_last_attempt_and_waits_in_the_outbox(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, replace(PLAIN, delivery=replace(PLAIN.delivery, max_attempts=1)))
        sent = message("a", headers={"h": "1"}, key="k", priority=2, idempotency_key="i")
        await broker.enqueue(queue, [sent])
        enqueued_at = manual_clock.now_ms()
        (got,) = await self.take(broker, queue)
        manual_clock.advance(5)
        assert await broker.nack([Failure(lease=got.lease, error="why: ünknown")]) == [Settlement.DEAD]
        (dead,) = await self.dead(broker, queue)
        assert (dead.message_id, dead.payload, dict(dead.headers)) == (sent.id, b"a", {"h": "1"})
        assert (dead.key, dead.priority, dead.idempotency_key) == ("k", 2, "i")
        assert (dead.attempts, dead.max_attempts, dead.reason, dead.error) == (
            1,
            1,
            DeathReason.ATTEMPTS,
            "why: ünknown",
        )
        assert (dead.enqueued_at_ms, dead.died_at_ms) == (enqueued_at, enqueued_at + 5)
        state = await broker.state(queue)
        assert (state.depth, state.running, state.odometers["dead"]) == (0, 0, 1)
        shard = shard_of(queue.scope, shards=broker.shards)
        await broker.drop_dead(shard, [dead.message_id, new_message_id()])
        assert await self.dead(broker, queue) == []

    async def test_the_last_lease_that_lapses_kills(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, replace(PLAIN, delivery=DeliveryPolicy(max_attempts=1, lease_ms=100)))
        await self.put(broker, queue, "a")
        await self.take(broker, queue)
        manual_clock.advance(100)
        swept = await broker.sweep(shard_of(queue.scope, shards=broker.shards))
        assert (swept.lapsed, swept.dead, swept.more) == (1, 1, False)
        (dead,) = await self.dead(broker, queue)
        assert (dead.reason, dead.error) == (DeathReason.LAPSED, "the lease of `tester` lapsed")

    async def test_dead_letter_gives_up_at_once(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue)
        assert await broker.dead_letter([Failure(lease=got.lease, error="poison")]) == [Settlement.DONE]
        (dead,) = await self.dead(broker, queue)
        assert (dead.reason, dead.error, dead.attempts) == (DeathReason.REJECTED, "poison", 1)

    async def test_a_given_delay_overrides_the_back_off(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue)
        await broker.nack([Failure(lease=got.lease, delay_ms=90_000)])
        assert (await broker.state(queue)).delayed == 1
        manual_clock.advance(89_999)
        assert await self.take(broker, queue) == []
        manual_clock.advance(1)
        assert len(await self.take(broker, queue)) == 1

    async def test_giving_back_never_counts(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, replace(PLAIN, delivery=DeliveryPolicy(max_attempts=1)))
        await self.put(broker, queue, "a")
        for _ in range(4):
            (got,) = await self.take(broker, queue)
            assert (got.attempt, got.last_error) == (1, None)
            back = Failure(lease=got.lease, error="no such task", delay_ms=1_000, uncounted=True)
            assert await broker.nack([back]) == [Settlement.DONE]
            (shown,) = (await broker.list_messages(queue, MessageState.SCHEDULED)).messages
            assert (shown.attempts, shown.last_error) == (0, "no such task")
            assert (await broker.count_messages(queue)).scheduled == 1
            manual_clock.advance(1_000)
        (got,) = await self.take(broker, queue)
        assert await broker.nack([Failure(lease=got.lease)]) == [Settlement.DEAD]

    async def test_giving_back_takes_only_its_own_attempt_off(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue)
        await broker.nack([Failure(lease=got.lease, error="boom", delay_ms=0)])
        for _ in range(3):
            (got,) = await self.take(broker, queue)
            assert (got.attempt, got.last_error) == (2, "boom")
            await broker.nack([Failure(lease=got.lease, delay_ms=0, uncounted=True)])

    async def test_a_message_that_kills_its_workers_dies_although_it_was_given_back(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, replace(PLAIN, delivery=DeliveryPolicy(max_attempts=2, lease_ms=100)))
        await self.put(broker, queue, "a")
        for _ in range(2):
            (got,) = await self.take(broker, queue)
            await broker.nack([Failure(lease=got.lease, delay_ms=0, uncounted=True)])
            await self.take(broker, queue)
            manual_clock.advance(100)
        await broker.sweep(shard_of(queue.scope, shards=broker.shards))
        (dead,) = await self.dead(broker, queue)
        assert (dead.reason, dead.attempts) == (DeathReason.LAPSED, 2)
