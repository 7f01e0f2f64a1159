"""Delays, expiry, the depth limit, and idempotency keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weir.broker.broker import Broker, CallAnswer
from weir.broker.layout import MAX_REPLY_BYTES
from weir.errors import CallStale, KeyReused
from weir.model.ids import NamedCall, new_id
from weir.model.message import DeathReason, Enqueue, Failure, NewMessage
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import Retention
from weir.testing.clocks import ManualClock
from weir.testing.conformance.base import PLAIN, Promises, message, texts


class CapacityPromises(Promises):
    async def test_a_delayed_message_waits_for_its_time(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "later", deliver_at_ms=manual_clock.now_ms() + 1_000)
        await self.put(broker, queue, "past", deliver_at_ms=manual_clock.now_ms() - 1_000)
        state = await broker.state(queue)
        assert (state.depth, state.delayed) == (2, 1)
        assert texts(await self.take(broker, queue)) == ["past"]
        manual_clock.advance(1_250)
        (got,) = await self.take(broker, queue)
        assert got.wait_ms == 250

    async def test_a_pop_hands_out_about_as_many_bytes_as_a_reply_may_have(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        queues = [queue, queue.scope.queue("another")]
        for one in queues:
            await broker.define(one, replace(PLAIN, name=one.queue))
            for _ in range(12):
                await broker.enqueue(one, [NewMessage(payload=bytes(1_000_000))])
        counts = []
        while found := await self.take(broker, queue.scope, limit=100):
            counts.append(len(found))
        assert sum(counts) == 24
        assert max(counts) * 1_000_000 <= MAX_REPLY_BYTES + 1_000_000
        assert len(counts) == 2

    async def test_messages_expire_by_ttl_and_by_age_into_the_dead_letters(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, replace(PLAIN, retention=Retention(max_age_ms=1_000)))
        await self.put(broker, queue, "old")
        await self.put(broker, queue, "short", ttl_ms=10)
        await self.put(broker, queue, "high", priority=9)
        manual_clock.advance(500)
        await self.put(broker, queue, "young")
        shard = shard_of(queue.scope, shards=broker.shards)
        assert (await broker.sweep(shard)).expired == 1
        manual_clock.advance(500)
        assert (await broker.sweep(shard)).expired == 2
        state = await broker.state(queue)
        assert (state.depth, state.odometers["expired"], state.odometers["dead"]) == (1, 3, 0)
        assert {dead.reason for dead in await self.dead(broker, queue)} == {DeathReason.EXPIRED}
        assert texts(await self.take(broker, queue)) == ["young"]

    async def test_a_message_that_waits_for_a_retry_still_expires(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a", ttl_ms=1_000)
        (got,) = await self.take(broker, queue)
        manual_clock.advance(900)
        await broker.nack([Failure(lease=got.lease, delay_ms=5_000, error="boom")])
        manual_clock.advance(100)
        assert (await broker.sweep(shard_of(queue.scope, shards=broker.shards))).expired == 1
        (dead,) = await self.dead(broker, queue)
        assert (dead.reason, dead.error, dead.attempts) == (DeathReason.EXPIRED, "boom", 1)

    async def test_a_full_queue_refuses_and_trims_nothing(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, replace(PLAIN, retention=Retention(max_depth=2)))
        answers = await broker.enqueue(queue, [message("a"), message("b"), message("c")])
        assert [answer.outcome for answer in answers] == [Enqueue.ACCEPTED, Enqueue.ACCEPTED, Enqueue.FULL]
        state = await broker.state(queue)
        assert (state.depth, state.odometers["refused"]) == (2, 1)
        await self.take(broker, queue, limit=1)
        assert (await broker.enqueue(queue, [message("d")]))[0].outcome is Enqueue.ACCEPTED

    async def test_an_idempotency_key_is_taken_once_in_its_window(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, replace(PLAIN, idempotency_window_ms=1_000))
        first = message("a", idempotency_key="k")
        answers = await broker.enqueue(
            queue, [first, message("a", idempotency_key="k"), message("b", idempotency_key="k")]
        )
        assert [(answer.outcome, answer.message_id) for answer in answers] == [
            (Enqueue.ACCEPTED, first.id),
            (Enqueue.DUPLICATE, first.id),
            (Enqueue.KEY_REUSED, first.id),
        ]
        (got,) = await self.take(broker, queue)
        await broker.ack([got.lease])
        manual_clock.advance(999)
        assert (await broker.enqueue(queue, [message("a", idempotency_key="k")]))[
            0
        ].outcome is Enqueue.DUPLICATE
        manual_clock.advance(1)
        assert (await broker.enqueue(queue, [message("b", idempotency_key="k")]))[
            0
        ].outcome is Enqueue.ACCEPTED

    @pytest.mark.parametrize(("window_ms", "lasts_ms"), [(100, 100), (5_000, 1_000), (None, 1_000)])
    async def test_an_idempotency_key_may_have_a_shorter_window_than_its_queue(
        self,
        broker: Broker,
        queue: QueueRef,
        manual_clock: ManualClock,
        window_ms: int | None,
        lasts_ms: int,
    ) -> None:
        await broker.define(queue, replace(PLAIN, idempotency_window_ms=1_000))

        async def put() -> Enqueue:
            once = message("a", idempotency_key="k", idempotency_window_ms=window_ms)
            others = [message("b", idempotency_key=f"other {at}") for at in range(3)]
            return (await broker.enqueue(queue, [once, *others]))[0].outcome

        assert await put() is Enqueue.ACCEPTED
        manual_clock.advance(lasts_ms - 1)
        assert await put() is Enqueue.DUPLICATE
        manual_clock.advance(1)
        await broker.sweep(shard_of(queue.scope, shards=broker.shards))
        assert await put() is Enqueue.ACCEPTED

    async def test_a_message_that_is_still_there_is_not_taken_twice(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        one = message("a")
        answers = await broker.enqueue(queue, [one, one])
        assert [answer.outcome for answer in answers] == [Enqueue.ACCEPTED, Enqueue.DUPLICATE]
        assert (await broker.state(queue)).depth == 1

    async def test_a_named_call_takes_effect_once_however_late_it_is_repeated(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, replace(PLAIN, retention=Retention(max_depth=1)))
        call, batch = NamedCall(slot=new_id(), id=new_id()), [message("a"), message("b")]
        first = await broker.enqueue(queue, batch, entry=call)
        assert [answer.outcome for answer in first] == [Enqueue.ACCEPTED, Enqueue.FULL]
        (got,) = await self.take(broker, queue)
        await broker.ack([got.lease])
        again = await broker.enqueue(queue, batch, entry=call)
        assert again == first
        answers = [CallAnswer(outcome=Enqueue.ACCEPTED), CallAnswer(outcome=Enqueue.FULL)]
        assert await broker.settle_call(queue, call) == answers
        assert (await broker.state(queue)).odometers["enqueued"] == 1

    async def test_a_named_call_remembers_which_message_came_first(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        call, first = NamedCall(slot=new_id(), id=new_id()), message("a", idempotency_key="i")
        await broker.enqueue(queue, [first])
        batch = [message("b"), message("a", idempotency_key="i"), message("c", idempotency_key="i")]
        told = await broker.enqueue(queue, batch, entry=call)
        assert await broker.settle_call(queue, call) == [
            CallAnswer(outcome=Enqueue.ACCEPTED),
            CallAnswer(outcome=Enqueue.DUPLICATE, original_id=first.id),
            CallAnswer(outcome=Enqueue.KEY_REUSED, original_id=first.id),
        ]
        assert await broker.enqueue(queue, batch, entry=call) == told

    async def test_slots_are_forgotten_only_after_they_were_idle(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        shard = shard_of(queue.scope, shards=broker.shards)
        calls = [NamedCall(slot=new_id(), id=new_id()) for _ in range(3)]
        await broker.enqueue(queue, [message("a")], entry=calls[0])
        await broker.settle_call(queue, calls[1])
        manual_clock.advance(1_000)
        await broker.enqueue(queue, [message("b")], entry=calls[2])
        idle = set(await broker.idle_calls(shard, idle_ms=1_000))
        assert [call.slot in idle for call in calls] == [True, True, False]
        await broker.enqueue(queue, [message("c")], entry=replace(calls[0], id=new_id()))
        assert await broker.forget_calls(shard, [call.slot for call in calls], idle_ms=1_000) == 1
        assert calls[1].slot not in await broker.idle_calls(shard, idle_ms=0)
        (answer,) = await broker.enqueue(queue, [message("d")], entry=calls[1])
        assert answer.outcome is Enqueue.ACCEPTED
        assert await broker.settle_call(queue, calls[2]) == [CallAnswer(outcome=Enqueue.ACCEPTED)]

    async def test_a_named_call_that_was_settled_before_it_arrived_is_void(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        call = NamedCall(slot=new_id(), id=new_id())
        assert await broker.settle_call(queue, call) == []
        (answer,) = await broker.enqueue(queue, [message("a")], entry=call)
        assert answer.outcome is Enqueue.GATED
        assert await broker.settle_call(queue, call) == []
        other = replace(call, id=new_id())
        assert (await broker.enqueue(queue, [message("b")], entry=other))[0].outcome is Enqueue.ACCEPTED

    async def test_a_named_call_that_arrives_behind_the_next_of_its_slot_changes_nothing(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        late, sent = NamedCall(slot=new_id(), id="9"), message("a")
        await broker.enqueue(queue, [sent], entry=late)
        (got,) = await self.take(broker, queue)
        await broker.ack([got.lease])
        following = replace(late, id="10")
        await broker.enqueue(queue, [message("b")], entry=following)
        with pytest.raises(CallStale):
            await broker.enqueue(queue, [sent], entry=late)
        with pytest.raises(CallStale):
            await broker.settle_call(queue, late)
        assert (await broker.state(queue)).odometers["enqueued"] == 2
        assert await broker.settle_call(queue, following) == [CallAnswer(outcome=Enqueue.ACCEPTED)]

    async def test_a_named_call_stands_for_its_messages(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        call, batch = NamedCall(slot=new_id(), id="1", digest=b"a" * 16), [message("a"), message("b")]
        first = await broker.enqueue(queue, batch, entry=call)
        for changed in (batch, batch[:1], [*batch, message("c")]):
            with pytest.raises(KeyReused):
                await broker.enqueue(queue, changed, entry=replace(call, digest=b"b" * 16))
        with pytest.raises(KeyReused):
            await broker.settle_call(queue, replace(call, digest=b"b" * 16))
        assert await broker.enqueue(queue, batch, entry=call) == first
        done = [CallAnswer(outcome=Enqueue.ACCEPTED)] * 2
        assert await broker.settle_call(queue, call) == done
        # An operation asks by the name alone.
        assert await broker.settle_call(queue, replace(call, digest=b"")) == done
        assert (await broker.state(queue)).odometers["enqueued"] == 2

    async def test_a_named_call_has_as_many_messages_as_the_first_time(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        call, batch = NamedCall(slot=new_id(), id="1"), [message("a"), message("b")]
        await broker.enqueue(queue, batch[:1], entry=call)
        with pytest.raises(KeyReused):
            await broker.enqueue(queue, batch, entry=call)
        assert (await broker.state(queue)).depth == 1

    async def test_a_void_call_is_void_for_its_own_messages_alone(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        call = NamedCall(slot=new_id(), id="1", digest=b"a" * 16)
        assert await broker.settle_call(queue, call) == []
        with pytest.raises(KeyReused):
            await broker.enqueue(queue, [message("a")], entry=replace(call, digest=b"b" * 16))
        (answer,) = await broker.enqueue(queue, [message("a")], entry=call)
        assert answer.outcome is Enqueue.GATED
