"""Promises about lives: the record of a message that is written when it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from uuid import uuid4

import msgspec
import pytest

from weir.broker.broker import Broker
from weir.model.ids import MessageId
from weir.model.inspection import WaitParts
from weir.model.lives import MAX_LIFE_ATTEMPTS, AttemptEnd, Life, LifeAttempt, LifeOutcome
from weir.model.message import DeathReason, Delivery, Failure, NewMessage, Settlement
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec
from weir.testing.clocks import ManualClock
from weir.testing.conformance.base import PLAIN, Promises, message

ReadLives = Callable[[QueueRef], Awaitable[Sequence[Life]]]


class LifePromises(Promises):
    """A message that ends leaves its life behind, unless its queue keeps none."""

    async def only_life(self, read_lives: ReadLives, queue: QueueRef) -> Life:
        (life,) = await read_lives(queue)
        return life

    async def test_a_message_that_is_acked_at_once_has_a_life_with_one_attempt(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock, read_lives: ReadLives
    ) -> None:
        await broker.define(queue, PLAIN)
        began = manual_clock.now_ms()
        await self.put(broker, queue, "hello", key="k", priority=7, headers={"h": "v"})
        manual_clock.advance(250)
        (delivery,) = await self.take(broker, queue)
        manual_clock.advance(40)
        await broker.ack([msgspec.structs.replace(delivery.lease, handler_ms=31)])
        assert await self.only_life(read_lives, queue) == Life(
            queue=queue,
            message_id=delivery.message_id,
            key="k",
            outcome=LifeOutcome.ACKED,
            reason=None,
            enqueued_at_ms=began,
            available_at_ms=began,
            handed_out_at_ms=began + 250,
            ended_at_ms=began + 290,
            priority=7,
            attempts=1,
            last_attempts=(_attempt(began + 250, 40, AttemptEnd.ACKED),),
            handler_ms=31,
            leased_ms=40,
            parts=WaitParts(unasked_ms=250),
            blocked_by_id=None,
            payload_bytes=5,
        )

    async def test_a_life_names_every_attempt_with_lapses(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock, read_lives: ReadLives
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "x")
        began = manual_clock.now_ms()
        (first,) = await self.take(broker, queue)
        await broker.nack([Failure(lease=first.lease, error="boom", delay_ms=1_000)])
        manual_clock.advance(1_000)
        await self.take(broker, queue, lease_ms=500)
        manual_clock.advance(700)
        (third,) = await self.take(broker, queue)
        manual_clock.advance(5)
        await broker.nack([Failure(lease=third.lease, error="boom")])
        life = await self.only_life(read_lives, queue)
        assert (life.outcome, life.reason, life.attempts) == (LifeOutcome.DEAD, DeathReason.ATTEMPTS, 3)
        assert life.last_attempts == (
            _attempt(began, 0, AttemptEnd.FAILED),
            _attempt(began + 1_000, 500, AttemptEnd.LAPSED),
            _attempt(began + 1_700, 5, AttemptEnd.FAILED),
        )
        assert (life.leased_ms, life.handler_ms, life.consumer) == (505, None, "tester")
        assert life.parts == WaitParts(backoff_ms=1_000, turn_ms=200)

    async def test_the_life_of_a_message_that_was_acked_on_a_kept_lease_says_acked(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock, read_lives: ReadLives
    ) -> None:
        await broker.define(queue, PLAIN)
        shard, now = shard_of(queue.scope, shards=broker.shards), manual_clock.now_ms()
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue, lease_ms=1_000)
        await broker.let_lapse(shard, until_ms=now)
        try:
            manual_clock.advance(1_500)
            assert await broker.ack([got.lease]) == [Settlement.DONE]
            life = await self.only_life(read_lives, queue)
            assert (life.outcome, life.leased_ms) == (LifeOutcome.ACKED, 1_500)
            assert life.last_attempts == (_attempt(now, 1_500, AttemptEnd.ACKED),)
        finally:
            await broker.let_lapse(shard, until_ms=1 << 52)

    async def test_a_message_whose_last_worker_was_killed_dies_with_a_lapse(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock, read_lives: ReadLives
    ) -> None:
        await broker.define(queue, replace(PLAIN, delivery=DeliveryPolicy(max_attempts=1, lease_ms=1_000)))
        await self.put(broker, queue, "x")
        await self.take(broker, queue)
        manual_clock.advance(3_000)
        await broker.sweep(shard_of(queue.scope, shards=broker.shards))
        life = await self.only_life(read_lives, queue)
        assert (life.outcome, life.reason) == (LifeOutcome.DEAD, DeathReason.LAPSED)
        assert [one.end for one in life.last_attempts] == [AttemptEnd.LAPSED]
        assert (life.leased_ms, life.ended_at_ms - life.enqueued_at_ms) == (1_000, 3_000)

    async def test_a_lease_that_lapsed_before_its_message_was_cancelled_ended_with_its_time(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock, read_lives: ReadLives
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "x")
        began = manual_clock.now_ms()
        (delivery,) = await self.take(broker, queue, lease_ms=1_000)
        manual_clock.advance(3_000)
        await broker.cancel(queue, [delivery.message_id])
        life = await self.only_life(read_lives, queue)
        assert (life.outcome, life.leased_ms) == (LifeOutcome.CANCELLED, 1_000)
        assert life.last_attempts == (_attempt(began, 1_000, AttemptEnd.LAPSED),)

    async def test_what_is_rejected_expires_or_is_cancelled_says_so(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock, read_lives: ReadLives
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "rejected", "running")
        rejected, running = await self.take(broker, queue)
        expired, waiting = message("expired", ttl_ms=100), message("waiting", delay_ms=60_000)
        await broker.enqueue(queue, [expired, waiting])
        await broker.dead_letter([Failure(lease=rejected.lease, error="no")])
        manual_clock.advance(200)
        await broker.cancel(queue, [running.message_id, waiting.id])
        await broker.sweep(shard_of(queue.scope, shards=broker.shards))
        lives = {life.message_id: life for life in await read_lives(queue)}
        told = {one: (life.outcome, life.reason, _ends(life)) for one, life in lives.items()}
        assert told == {
            rejected.message_id: (LifeOutcome.DEAD, DeathReason.REJECTED, [AttemptEnd.REJECTED]),
            running.message_id: (LifeOutcome.CANCELLED, None, [AttemptEnd.CANCELLED]),
            expired.id: (LifeOutcome.EXPIRED, DeathReason.EXPIRED, []),
            waiting.id: (LifeOutcome.CANCELLED, None, []),
        }
        assert lives[waiting.id].parts == WaitParts(scheduled_ms=200)
        assert lives[expired.id].parts == WaitParts(turn_ms=200)
        assert (lives[expired.id].handed_out_at_ms, lives[expired.id].consumer) == (None, None)

    async def test_a_life_keeps_the_last_twenty_attempts(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock, read_lives: ReadLives
    ) -> None:
        await broker.define(queue, replace(PLAIN, delivery=DeliveryPolicy(max_attempts=100)))
        await self.put(broker, queue, "x")
        began = manual_clock.now_ms()
        for number in range(MAX_LIFE_ATTEMPTS + 5):
            (delivery,) = await broker.dequeue(queue, consumer=f"consumer-{number}")
            await broker.nack([Failure(lease=delivery.lease, delay_ms=10)])
            manual_clock.advance(10)
        (delivery,) = await self.take(broker, queue)
        await broker.ack([delivery.lease])
        life = await self.only_life(read_lives, queue)
        assert (life.attempts, len(life.last_attempts)) == (26, MAX_LIFE_ATTEMPTS)
        assert [one.consumer for one in life.last_attempts[:2]] == ["consumer-6", "consumer-7"]
        assert life.last_attempts[0].started_at_ms == began + 60

    async def test_a_message_that_waited_behind_its_key_names_the_one_before(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock, read_lives: ReadLives
    ) -> None:
        await broker.define(queue, replace(PLAIN, ordering=Ordering.PER_KEY))
        await self.put(broker, queue, "first", "second", key="k")
        (first,) = await self.take(broker, queue)
        manual_clock.advance(300)
        await broker.ack([first.lease])
        manual_clock.advance(20)
        (second,) = await self.take(broker, queue)
        await broker.ack([second.lease])
        one, two = await read_lives(queue)
        assert (one.blocked_by_id, two.blocked_by_id) == (None, first.message_id)
        assert (one.parts, two.parts) == (WaitParts(), WaitParts(blocked_ms=300, turn_ms=20))
        assert (two.key, two.attempts) == ("k", 1)

    @pytest.mark.parametrize("history", [0, 1, 3])
    async def test_a_queue_keeps_the_lives_that_it_was_told_to(
        self, broker: Broker, queue: QueueRef, read_lives: ReadLives, history: int
    ) -> None:
        await broker.define(queue, replace(PLAIN, history=history))
        messages = [_numbered(number) for number in range(12)]
        await broker.enqueue(queue, messages)
        deliveries = await self.take(broker, queue, limit=12)
        await broker.nack([Failure(lease=one.lease, delay_ms=0) for one in deliveries[:6]])
        again = await self.take(broker, queue, limit=12)
        await broker.ack([one.lease for one in (*again, *deliveries[6:])])
        kept = {life.message_id for life in await read_lives(queue)}
        assert kept == {one.id for number, one in enumerate(messages) if history and number % history == 0}

    async def test_a_call_that_ends_many_messages_writes_all_their_lives(
        self, broker: Broker, queue: QueueRef, read_lives: ReadLives
    ) -> None:
        await broker.define(queue, QueueSpec(name=queue.queue))
        key = "k" * 200
        await broker.enqueue(queue, [message(str(number), key=key) for number in range(500)])
        deliveries: list[Delivery] = await self.take(broker, queue, limit=500)
        await broker.ack([one.lease for one in deliveries])
        lives = await read_lives(queue)
        assert [life.message_id for life in lives] == [one.message_id for one in deliveries]
        assert {life.key for life in lives} == {key}


def _attempt(started_at_ms: int, took_ms: int, end: AttemptEnd) -> LifeAttempt:
    return LifeAttempt(
        started_at_ms=started_at_ms, ended_at_ms=started_at_ms + took_ms, end=end, consumer="tester"
    )


def _numbered(number: int) -> NewMessage:
    """A message whose id ends with a number."""
    return NewMessage(payload=b"x", id=MessageId(f"{str(uuid4())[:-8]}{number:08x}"))


def _ends(life: Life) -> list[AttemptEnd]:
    return [one.end for one in life.last_attempts]
