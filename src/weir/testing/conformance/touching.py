"""Touching: messages are moved and cancelled where they wait, against whatever consumers do with them."""

from __future__ import annotations

import pytest

from weir.broker.broker import Broker
from weir.errors import InvalidInput, NotFound
from weir.model.ids import MessageId, new_message_id
from weir.model.inspection import MessageState, Touched
from weir.model.message import Failure, LeaseRef, Settlement
from weir.model.names import QueueRef
from weir.testing.clocks import ManualClock
from weir.testing.conformance.base import PLAIN, Promises, message, texts
from weir.testing.conformance.looking import FIFO, KEYED

DONE, GONE, LEASED = [Touched.DONE], [Touched.GONE], [Touched.LEASED]


class Touching(Promises):
    async def ids_of(self, broker: Broker, queue: QueueRef, *names: str, **fields: object) -> list[MessageId]:
        sent = [message(name, **fields) for name in names]
        await broker.enqueue(queue, sent)
        return [one.id for one in sent]

    async def test_run_now_brings_scheduled_and_retrying_messages_forward(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        (failed,) = await self.ids_of(broker, queue, "failed")
        (got,) = await self.take(broker, queue)
        await broker.nack([Failure(lease=got.lease, delay_ms=60_000)])
        (later,) = await self.ids_of(broker, queue, "later", delay_ms=60_000)
        assert await self.take(broker, queue) == []
        assert await broker.run_now(queue, [later, failed]) == DONE * 2
        assert texts(await self.take(broker, queue)) == ["later", "failed"]
        assert await broker.run_now(queue, [later, new_message_id()]) == LEASED + GONE

    async def test_a_rescheduled_message_waits_until_its_new_time(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        now, later, back = await self.ids_of(broker, queue, "now", "later", "back")
        at = manual_clock.now_ms() + 5_000
        assert await broker.reschedule(queue, [later, back], at_ms=at) == DONE * 2
        assert await broker.reschedule(queue, [back], delay_ms=0) == DONE
        got = await self.take(broker, queue)
        assert texts(got) == ["now", "back"]
        assert await broker.reschedule(queue, [now], delay_ms=1) == LEASED
        await broker.ack([one.lease for one in got])
        assert await broker.reschedule(queue, [now], delay_ms=1) == GONE
        manual_clock.advance(4_999)
        assert await self.take(broker, queue) == []
        manual_clock.advance(1)
        assert texts(await self.take(broker, queue)) == ["later"]

    async def test_a_postponed_message_keeps_what_it_has_left_to_live(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        kept, dead = await self.ids_of(broker, queue, "kept", "dead", ttl_ms=1_000)
        manual_clock.advance(400)
        await broker.reschedule(queue, [kept], delay_ms=60_000)
        manual_clock.advance(60_599)
        assert texts(await self.take(broker, queue)) == ["kept"]
        assert [one.message_id for one in await self.dead(broker, queue)] == [dead]

    async def test_a_postponed_head_blocks_its_key(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        """Order holds: a message behind a head cannot be moved, and the head stays the head."""
        await broker.define(queue, KEYED)
        first, second, _ = await self.ids_of(broker, queue, "a0", "a1", "a2", key="a")
        await self.put(broker, queue, "b0", key="b")
        assert await broker.reschedule(queue, [second], delay_ms=9_000) == [Touched.BLOCKED]
        assert await broker.reschedule(queue, [first], delay_ms=9_000) == DONE
        behind = await broker.show_message(queue, second)
        assert behind is not None
        assert (behind.state, behind.behind_id) == (MessageState.BLOCKED, first)
        assert texts(await self.take(broker, queue)) == ["b0"]
        assert await broker.reschedule(queue, [first], delay_ms=3_000) == DONE
        manual_clock.advance(3_000)
        got = await self.take(broker, queue)
        assert texts(got) == ["a0"]
        await broker.ack([one.lease for one in got])
        assert texts(await self.take(broker, queue)) == ["a1"]

    async def test_a_head_that_dies_or_is_cancelled_while_it_was_postponed_frees_its_key(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, FIFO)
        first, second, _ = await self.ids_of(broker, queue, *"abc", ttl_ms=50_000)
        await broker.reschedule(queue, [first], delay_ms=9_000)
        assert await broker.cancel(queue, [first]) == DONE
        got = await self.take(broker, queue)
        assert texts(got) == ["b"]
        await broker.nack([Failure(lease=got[0].lease, delay_ms=1_000)])
        assert await broker.run_now(queue, [second]) == DONE
        got = await self.take(broker, queue)
        assert texts(got) == ["b"]
        await broker.dead_letter([Failure(lease=got[0].lease)])
        assert texts(await self.take(broker, queue)) == ["c"]

    async def test_a_scheduled_message_that_runs_now_takes_the_last_place_of_its_key(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, KEYED)
        (later,) = await self.ids_of(broker, queue, "later", key="a", delay_ms=9_000)
        await self.put(broker, queue, "a0", key="a")
        assert await broker.run_now(queue, [later]) == DONE
        got = await self.take(broker, queue)
        assert texts(got) == ["a0"]
        await broker.ack([one.lease for one in got])
        assert texts(await self.take(broker, queue)) == ["later"]

    async def test_priority_is_changed_where_it_counts(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        _, b, c = await self.ids_of(broker, queue, *"abc", priority=4)
        (later,) = await self.ids_of(broker, queue, "later", delay_ms=1_000)
        assert await broker.change_priority(queue, [c, later], 9) == DONE * 2
        assert await broker.change_priority(queue, [b], 0) == DONE
        manual_clock.advance(1_000)
        assert texts(await self.take(broker, queue)) == ["c", "later", "a", "b"]
        assert await broker.change_priority(queue, [c, new_message_id()], 1) == LEASED + GONE

    async def test_priority_is_refused_where_it_would_break_the_order(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, FIFO)
        a, b = await self.ids_of(broker, queue, *"ab")
        assert await broker.change_priority(queue, [a, b], 9) == [Touched.ORDERED] * 2

    async def test_a_moved_message_still_expires_in_time(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        first, second = await self.ids_of(broker, queue, *"ab", ttl_ms=1_000)
        await self.put(broker, queue, "c", ttl_ms=90_000)
        await broker.change_priority(queue, [first], 0)
        await broker.reschedule(queue, [second], delay_ms=300)
        await broker.run_now(queue, [second])
        manual_clock.advance(1_300)
        assert texts(await self.take(broker, queue)) == ["c"]
        assert {one.message_id for one in await self.dead(broker, queue)} == {first, second}

    async def test_a_cancelled_message_is_gone_and_counted(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        """Ready, scheduled and retrying: it is not a dead letter, and its id may come again."""
        await broker.define(queue, PLAIN)
        ready, failed, kept = await self.ids_of(broker, queue, *"abc")
        (later,) = await self.ids_of(broker, queue, "later", delay_ms=1_000)
        got = {one.message_id: one for one in await self.take(broker, queue, limit=2)}
        await broker.nack([Failure(lease=got[failed].lease, error="no", delay_ms=500)])
        await broker.nack([Failure(lease=got[ready].lease, delay_ms=0)])
        wanted = [ready, failed, later, ready, new_message_id()]
        assert await broker.cancel(queue, wanted) == DONE * 3 + GONE * 2
        manual_clock.advance(2_000)
        assert [one.message_id for one in await self.take(broker, queue)] == [kept]
        assert await self.dead(broker, queue) == []
        state = await broker.state(queue)
        assert (state.depth, state.running, state.delayed, state.odometers["cancelled"]) == (0, 1, 0, 3)
        assert state.environment_depth == 0
        assert await broker.holds(queue, wanted) == [False] * 5
        assert await broker.last_errors(queue, limit=9) == []
        await broker.enqueue(queue, [message("again", id=ready)])
        assert texts(await self.take(broker, queue)) == ["again"]

    async def test_a_cancelled_lease_is_revoked_and_its_holder_is_told(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, KEYED)
        await self.put(broker, queue, "a0", "a1", key="a")
        (got,) = await self.take(broker, queue, lease_ms=5_000)
        other = LeaseRef(queue=queue, message_id=got.message_id, token="00" * 16)
        assert await broker.revoked([got.lease]) == [False]
        assert await broker.cancel(queue, [got.message_id]) == [Touched.REVOKED]
        assert await broker.revoked([got.lease, other]) == [True, False]
        told = await broker.extend([got.lease, other], lease_ms=1_000)
        assert told == [Settlement.CANCELLED, Settlement.LAPSED]
        failure = Failure(lease=got.lease)
        assert await broker.ack([got.lease]) == [Settlement.LAPSED]
        assert await broker.nack([failure]) == [Settlement.LAPSED]
        assert await broker.dead_letter([failure]) == [Settlement.LAPSED]
        assert texts(await self.take(broker, queue)) == ["a1"]
        state = await broker.state(queue)
        assert (state.depth, state.running, state.odometers["cancelled"]) == (0, 1, 1)
        manual_clock.advance(5_000)
        assert await broker.revoked([got.lease]) == [False]
        assert await broker.extend([got.lease], lease_ms=1_000) == [Settlement.LAPSED]

    async def test_touching_refuses_what_it_cannot_mean(self, broker: Broker, queue: QueueRef) -> None:
        with pytest.raises(NotFound):
            await broker.cancel(queue, [new_message_id()])
        await broker.define(queue, PLAIN)
        assert await broker.cancel(queue, []) == []
        for priority in (-1, 10):
            with pytest.raises(InvalidInput):
                await broker.change_priority(queue, [], priority)
        with pytest.raises(InvalidInput, match="give one of them"):
            await broker.reschedule(queue, [])
        with pytest.raises(InvalidInput, match="give one of them"):
            await broker.reschedule(queue, [], at_ms=5, delay_ms=5)
        with pytest.raises(InvalidInput):
            await broker.cancel(queue, [MessageId("no id")])
