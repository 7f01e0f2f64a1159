"""What every broker promises, as tests: a backend conforms when a three-line subclass of this passes.

    class TestMyBroker(BrokerConformance):
        @pytest.fixture
        def broker(self, manual_clock): return MyBroker(clock=manual_clock)

The subclass's module needs a `manual_clock` fixture (a clock that stands still until told otherwise) that
the broker takes its time from, and an `environment` fixture (a fresh `EnvironmentRef` a test).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from weir.broker.broker import Broker, Call, Gated, Shard
from weir.errors import Conflict, InvalidInput, NotFound, TooLarge
from weir.model.ids import new_id, new_message_id
from weir.model.message import DeathReason, Delivery, Enqueue, Failure, NewMessage, Settlement
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec, Retention
from weir.testing.clocks import ManualClock

PLAIN = QueueSpec(name="work", delivery=DeliveryPolicy(max_attempts=3, lease_ms=10_000))


def texts(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.payload.decode() for delivery in deliveries]


def message(text: str, **fields: Any) -> NewMessage:
    return NewMessage(payload=text.encode(), **fields)


class BrokerConformance:
    """Delivery, leases, order, limits, retention, death and what is refused."""

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

    # delivery and leases

    async def test_a_message_comes_out_as_it_went_in(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        sent = NewMessage(
            payload=b"\x00\xffpayload\r\n",
            headers={"täg": "a:b{c}*"},
            key="k:1",
            priority=7,
            idempotency_key="i",
        )
        await broker.enqueue(queue, [sent])
        (got,) = await self.take(broker, queue)
        assert (got.message_id, got.payload, dict(got.headers), got.key, got.priority) == (
            sent.id,
            sent.payload,
            {"täg": "a:b{c}*"},
            "k:1",
            7,
        )
        assert (got.idempotency_key, got.attempt, got.last_error, got.queue) == ("i", 1, None, queue)

    async def test_a_leased_message_is_handed_to_nobody_else(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        assert len(await self.take(broker, queue)) == 1
        assert await self.take(broker, queue) == []

    async def test_an_acknowledged_message_is_gone(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue)
        assert await broker.ack([got.lease]) == [Settlement.DONE]
        assert await broker.ack([got.lease]) == [Settlement.LAPSED]
        state = await broker.state(queue)
        assert (state.depth, state.running, state.odometers["acked"]) == (0, 0, 1)

    async def test_a_lapsed_lease_is_handed_to_the_next_consumer(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        await self.take(broker, queue)
        manual_clock.advance(9_999)
        assert await self.take(broker, queue) == []
        manual_clock.advance(1)
        (again,) = await self.take(broker, queue)
        assert (again.attempt, again.wait_ms) == (2, 0)

    async def test_a_lapsed_lease_settles_nothing(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue)
        manual_clock.advance(10_000)
        failure = Failure(lease=got.lease, error="late")
        assert await broker.ack([got.lease]) == [Settlement.LAPSED]
        assert await broker.nack([failure]) == [Settlement.LAPSED]
        assert await broker.dead_letter([failure]) == [Settlement.LAPSED]
        assert await broker.extend([got.lease], lease_ms=1_000) == [Settlement.LAPSED]
        (again,) = await self.take(broker, queue)
        assert await broker.ack([got.lease, again.lease]) == [Settlement.LAPSED, Settlement.DONE]

    async def test_a_foreign_token_settles_nothing(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue)
        for token in ("", "not a token", "00" * 16, got.lease.token[:-1]):
            assert await broker.ack([replace(got.lease, token=token)]) == [Settlement.LAPSED]
        assert await broker.ack([got.lease]) == [Settlement.DONE]

    async def test_extend_keeps_a_lease_from_lapsing(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue)
        manual_clock.advance(9_000)
        assert await broker.extend([got.lease], lease_ms=20_000) == [Settlement.DONE]
        manual_clock.advance(19_999)
        assert await self.take(broker, queue) == []
        assert await broker.ack([got.lease]) == [Settlement.DONE]

    async def test_a_call_may_settle_leases_of_many_queues(
        self, broker: Broker, environment: EnvironmentRef
    ) -> None:
        queues = [environment.queue(name) for name in ("a", "b", "c")]
        for queue in queues:
            await broker.define(queue, PLAIN)
            await self.put(broker, queue, queue.queue)
        got = await self.take(broker, environment)
        mixed = [got[0].lease, replace(got[1].lease, token="00"), got[2].lease, got[1].lease]
        assert await broker.ack(mixed) == [
            Settlement.DONE,
            Settlement.LAPSED,
            Settlement.DONE,
            Settlement.DONE,
        ]

    async def test_one_lease_named_twice_is_settled_once(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue)
        assert await broker.ack([got.lease, got.lease]) == [Settlement.DONE, Settlement.LAPSED]
        assert (await broker.state(queue)).odometers["acked"] == 1

    # retries and death

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

    # order

    async def test_an_unordered_queue_serves_high_priorities_first(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        await broker.enqueue(
            queue, [message(f"{p}{n}", priority=p) for n in ("a", "b") for p in (4, 9, 0, 5)]
        )
        assert texts(await self.take(broker, queue)) == ["9a", "9b", "5a", "5b", "4a", "4b", "0a", "0b"]

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
                message("n1"),
                message("n2"),
            ],
        )
        got = await self.take(broker, queue)
        assert texts(got) == ["x1", "y1", "n1"]
        await broker.nack([Failure(lease=got[0].lease, delay_ms=500)])
        await broker.ack([got[1].lease, got[2].lease])
        assert texts(await self.take(broker, queue)) == ["n2"]
        manual_clock.advance(500)
        (retried,) = await self.take(broker, queue)
        assert (texts([retried]), retried.attempt) == (["x1"], 2)
        await broker.dead_letter([Failure(lease=retried.lease)])
        assert texts(await self.take(broker, queue)) == ["x2"]

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

    # time and room

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
        call, batch = Call(lane=new_id(), id=new_id()), [message("a"), message("b")]
        first = await broker.enqueue(queue, batch, call=call)
        assert [answer.outcome for answer in first] == [Enqueue.ACCEPTED, Enqueue.FULL]
        (got,) = await self.take(broker, queue)
        await broker.ack([got.lease])
        again = await broker.enqueue(queue, batch, call=call)
        assert [answer.outcome for answer in again] == [Enqueue.DUPLICATE, Enqueue.GATED]
        assert [answer.message_id for answer in again] == [one.id for one in batch]
        assert await broker.settle_call(queue, call) == [True, False]
        assert (await broker.state(queue)).odometers["enqueued"] == 1

    async def test_a_named_call_that_was_settled_before_it_arrived_is_void(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        call = Call(lane=new_id(), id=new_id())
        assert await broker.settle_call(queue, call) == []
        (answer,) = await broker.enqueue(queue, [message("a")], call=call)
        assert answer.outcome is Enqueue.GATED
        assert await broker.settle_call(queue, call) == []
        other = replace(call, id=new_id())
        assert (await broker.enqueue(queue, [message("b")], call=other))[0].outcome is Enqueue.ACCEPTED

    # limits, pause, fairness

    async def test_the_limit_of_a_queue_holds(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, replace(PLAIN, concurrency=2))
        await self.put(broker, queue, "a", "b", "c")
        got = await self.take(broker, queue)
        assert len(got) == 2
        assert await self.take(broker, queue.scope) == []
        await broker.ack([got[0].lease])
        assert len(await self.take(broker, queue.scope)) == 1

    async def test_the_limit_of_an_environment_holds_over_its_queues(
        self, broker: Broker, environment: EnvironmentRef
    ) -> None:
        queues = [environment.queue("a"), environment.queue("b")]
        await broker.limit(environment, 3)
        for queue in queues:
            await broker.define(queue, PLAIN)
            await self.put(broker, queue, "1", "2", "3")
        got = await self.take(broker, queues[0], limit=2) + await self.take(broker, environment)
        assert len(got) == 3
        for source in (*queues, environment, Shard(shard_of(environment, shards=broker.shards))):
            assert [d for d in await self.take(broker, source) if d.queue.scope == environment] == []
        state = await broker.state(queues[0])
        assert (state.environment_running, state.environment_depth, state.environment_limit) == (3, 3, 3)
        await broker.ack([got[0].lease])
        assert len(await self.take(broker, environment)) == 1
        await broker.limit(environment, None)
        assert len(await self.take(broker, environment)) == 2

    async def test_a_paused_queue_hands_out_nothing_but_settles(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a", "b")
        (got,) = await self.take(broker, queue, limit=1)
        await broker.pause(queue)
        assert await self.take(broker, queue) == []
        assert await self.take(broker, queue.scope) == []
        assert (await broker.state(queue)).paused
        assert await broker.ack([got.lease]) == [Settlement.DONE]
        await broker.resume(queue)
        assert texts(await self.take(broker, queue.scope)) == ["b"]

    async def test_queues_of_an_environment_take_turns(
        self, broker: Broker, environment: EnvironmentRef
    ) -> None:
        for name, count in (("busy", 8), ("calm", 2)):
            await broker.define(environment.queue(name), PLAIN)
            await self.put(broker, environment.queue(name), *(f"{name}{n}" for n in range(count)))
        together = await self.take(broker, environment, limit=2)
        assert sorted(d.queue.queue for d in together) == ["busy", "calm"]
        single = [await self.take(broker, environment, limit=1) for _ in range(3)]
        assert [got[0].queue.queue for got in single] == ["busy", "calm", "busy"]

    async def test_a_busy_tenant_does_not_starve_another(
        self, broker: Broker, environment: EnvironmentRef
    ) -> None:
        shard = shard_of(environment, shards=broker.shards)
        others = (replace(environment, environment=f"other {n}") for n in range(1_000))
        other = next(env for env in others if shard_of(env, shards=broker.shards) == shard)
        for number in range(5):
            queue = environment.queue(f"busy {number}")
            await broker.define(queue, PLAIN)
            await self.put(broker, queue, *(f"{n}" for n in range(20)))
        await broker.define(other.queue("calm"), PLAIN)
        await self.put(broker, other.queue("calm"), "1", "2", "3")
        mine: list[Delivery] = []
        for _ in range(1_000):
            if len(mine) >= 6:
                break
            got = await self.take(broker, Shard(shard), limit=1)
            mine += [d for d in got if d.queue.scope in (environment, other)]
        assert [d.queue.scope == other for d in mine].count(True) == 3

    # gates

    async def test_a_closed_gate_sends_producers_to_the_operation_queue(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        one, two = Gated(key="k", operation="1"), Gated(key="k", operation="2")
        await broker.close_gates(queue, [one, two, two])

        async def outcomes(**options: Any) -> list[Enqueue]:
            batch = [message("a", key="k"), message("b", key="other"), message("c")]
            return [answer.outcome for answer in await broker.enqueue(queue, batch, **options)]

        gated = [Enqueue.GATED, Enqueue.ACCEPTED, Enqueue.ACCEPTED]
        assert await outcomes() == gated
        assert await outcomes(through_gate=True) == [Enqueue.ACCEPTED] * 3
        assert await broker.open_gates(queue, [one]) == [two]
        assert await outcomes() == gated
        assert await broker.open_gates(queue, [one, two]) == []
        assert await outcomes() == [Enqueue.ACCEPTED] * 3
        await broker.close_gates(queue, [Gated(key=None, operation="3")])
        assert await outcomes() == [Enqueue.ACCEPTED, Enqueue.ACCEPTED, Enqueue.GATED]

    async def test_an_operation_puts_in_each_of_its_messages_once(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, replace(PLAIN, retention=Retention(max_depth=2)))
        batch = [message(name, key="k") for name in ("a", "b", "c", "d")]

        async def push() -> list[Enqueue]:
            answers = await broker.enqueue(queue, batch, operations=["1", "1", "1", "2"])
            return [answer.outcome for answer in answers]

        assert await push() == [Enqueue.GATED] * 4
        gates = [Gated(key="k", operation="1"), Gated(key="k", operation="2")]
        await broker.close_gates(queue, gates)
        assert await push() == [Enqueue.ACCEPTED, Enqueue.ACCEPTED, Enqueue.FULL, Enqueue.FULL]
        await broker.ack([got.lease for got in await self.take(broker, queue)])
        await broker.close_gates(queue, gates)
        assert await push() == [Enqueue.DUPLICATE, Enqueue.DUPLICATE, Enqueue.ACCEPTED, Enqueue.ACCEPTED]
        assert await push() == [Enqueue.DUPLICATE] * 4
        await broker.open_gates(queue, gates)
        assert await push() == [Enqueue.GATED] * 4

    async def test_direct_entry_is_allowed_until_the_stated_time(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        shard, now = shard_of(queue.scope, shards=broker.shards), manual_clock.now_ms()
        assert await broker.now_ms(shard) == now
        await broker.allow_direct(shard, until_ms=now + 100)
        await broker.allow_direct(shard, until_ms=now + 50)
        try:
            manual_clock.advance(100)
            (first,) = await broker.enqueue(queue, [message("a")], call=Call(lane=new_id(), id=new_id()))
            assert first.outcome is Enqueue.ACCEPTED
            manual_clock.advance(1)
            (second,) = await broker.enqueue(queue, [message("b")], call=Call(lane=new_id(), id=new_id()))
            assert second.outcome is Enqueue.GATED
            (nobodys,) = await broker.enqueue(queue, [message("d")])
            assert nobodys.outcome is Enqueue.ACCEPTED
            (through,) = await broker.enqueue(queue, [message("c")], through_gate=True)
            assert through.outcome is Enqueue.ACCEPTED
        finally:
            await broker.allow_direct(shard, until_ms=1 << 52)

    async def test_holds_tells_what_is_still_there(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        waiting, leased, done, dead = (
            message(name, priority=p) for name, p in zip("wlde", range(4), strict=True)
        )
        await broker.enqueue(queue, [waiting, leased, done, dead])
        got = await self.take(broker, queue, limit=3)
        await broker.dead_letter([Failure(lease=got[0].lease)])
        await broker.ack([got[1].lease])
        ids = [waiting.id, leased.id, done.id, dead.id, new_message_id()]
        assert await broker.holds(queue, ids) == [True, True, False, True, False]

    # long polling

    async def test_a_waiting_consumer_gets_a_message_within_20_ms(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        shard = Shard(shard_of(queue.scope, shards=broker.shards))
        for source in (queue, queue.scope, shard):
            # Others may have left messages in the shard.
            while await self.take(broker, shard, limit=1_000):
                pass
            delays = []
            for _ in range(5):
                waiting = asyncio.create_task(self.take(broker, source, wait_ms=5_000))
                await asyncio.sleep(0.05)
                assert not waiting.done()
                started = time.perf_counter()
                await self.put(broker, queue, "a")
                (got,) = await waiting
                delays.append(time.perf_counter() - started)
                await broker.ack([got.lease])
            # The second best: a busy machine delays some of them, the mechanism does not.
            assert sorted(delays)[1] < 0.020

    async def test_a_consumer_that_waits_in_vain_gets_nothing(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        started = time.monotonic()
        assert await self.take(broker, queue, wait_ms=100) == []
        assert 0.09 < time.monotonic() - started < 2

    async def test_freed_room_wakes_a_waiting_consumer(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, replace(PLAIN, concurrency=1))
        await self.put(broker, queue, "a", "b")
        (first,) = await self.take(broker, queue)
        waiting = asyncio.create_task(self.take(broker, queue, wait_ms=5_000))
        await asyncio.sleep(0.05)
        await broker.ack([first.lease])
        assert texts(await asyncio.wait_for(waiting, 1)) == ["b"]

    # describing and refusing

    async def test_the_account_balances(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, *"abcdefgh")
        await self.put(broker, queue, "t", ttl_ms=5)
        got = await self.take(broker, queue, limit=6)
        await broker.ack([got[0].lease, got[1].lease])
        await broker.nack([Failure(lease=got[2].lease)])
        await broker.dead_letter([Failure(lease=got[3].lease)])
        manual_clock.advance(10)
        await broker.sweep(shard_of(queue.scope, shards=broker.shards))
        state = await broker.state(queue)
        o = state.odometers
        assert state.depth + state.running == o["enqueued"] - o["acked"] - o["dead"] - o["expired"]
        assert (state.depth, state.running, o["dequeued"], o["nacked"]) == (3, 2, 6, 1)

    async def test_states_lists_every_queue_of_an_environment_by_name(
        self, broker: Broker, environment: EnvironmentRef
    ) -> None:
        for name in ("b", "a:{}*", "long name " * 20):
            await broker.define(environment.queue(name), PLAIN)
        names = [state.queue.queue for state in await broker.states(environment)]
        assert names == sorted(["b", "a:{}*", "long name " * 20])

    async def test_a_queue_is_forgotten_only_when_it_is_empty(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        with pytest.raises(Conflict):
            await broker.forget(queue)
        (got,) = await self.take(broker, queue)
        await broker.ack([got.lease])
        await broker.forget(queue)
        await broker.forget(queue)
        assert await broker.states(queue.scope) == []

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
