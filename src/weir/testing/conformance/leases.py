"""Delivery and leases: nobody else gets a leased message, and only its holder settles it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace as with_promises

from msgspec.structs import replace

from weir.broker.broker import Broker
from weir.broker.layout import KEPT_MS, SETTLED_MS
from weir.model.durations import HOUR_MS
from weir.model.ids import new_message_id
from weir.model.inspection import Touched
from weir.model.message import Failure, NewMessage, Settlement
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy
from weir.testing.clocks import ManualClock
from weir.testing.conformance.base import PLAIN, Promises


class Leases(Promises):
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
        state = await broker.state(queue)
        assert (state.depth, state.running, state.odometers["acked"]) == (0, 0, 1)

    async def test_a_settlement_that_is_asked_for_again_says_what_it_did(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        """Its answer may have been lost on the way."""
        await broker.define(
            queue, with_promises(PLAIN, delivery=DeliveryPolicy(max_attempts=2, lease_ms=10_000))
        )
        await self.put(broker, queue, *"abcdefgh")
        first = await self.take(broker, queue, limit=4)
        got = [*first, *[one for _ in range(4) for one in await self.take(broker, queue)]]
        leases = [one.lease for one in got]
        fails = [Failure(lease=lease, delay_ms=60_000) for lease in leases]
        settle: list[Callable[[], Awaitable[list[Settlement]]]] = [
            lambda: broker.ack([leases[0], leases[2], leases[4]]),
            lambda: broker.nack([fails[1], fails[5]]),
            lambda: broker.dead_letter([fails[3], fails[6]]),
            lambda: broker.ack([leases[7]]),
        ]
        told = [await one() for one in settle]
        assert {answer for answers in told for answer in answers} == {Settlement.DONE}
        before = await broker.state(queue)
        assert [await one() for one in settle] == told
        # Not in the same grouping, and others' settlements in between.
        assert await broker.ack(leases) == [
            Settlement.DONE if at in (0, 2, 4, 7) else Settlement.LAPSED for at in range(8)
        ]
        assert await broker.nack(fails) == [
            Settlement.DONE if at in (1, 5) else Settlement.LAPSED for at in range(8)
        ]
        assert await broker.dead_letter(fails) == [
            Settlement.DONE if at in (3, 6) else Settlement.LAPSED for at in range(8)
        ]
        assert await broker.state(queue) == before

    async def test_the_last_failure_that_is_told_again_killed_its_message_once(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(
            queue, with_promises(PLAIN, delivery=DeliveryPolicy(max_attempts=1, lease_ms=10_000))
        )
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue)
        for _ in range(2):
            assert await broker.nack([Failure(lease=got.lease)]) == [Settlement.DEAD]
        assert (await broker.state(queue)).odometers["dead"] == 1

    async def test_a_settlement_is_remembered_for_a_minute(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue)
        await broker.ack([got.lease])
        manual_clock.advance(SETTLED_MS - 1)
        assert await broker.ack([got.lease]) == [Settlement.DONE]
        manual_clock.advance(1)
        assert await broker.ack([got.lease]) == [Settlement.LAPSED]

    async def test_a_lease_that_lapsed_was_never_settled(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        (late,) = await self.take(broker, queue)
        manual_clock.advance(PLAIN.delivery.lease_ms)
        (got,) = await self.take(broker, queue)
        assert await broker.ack([got.lease]) == [Settlement.DONE]
        for _ in range(2):
            assert await broker.ack([late.lease]) == [Settlement.LAPSED]
            assert await broker.nack([Failure(lease=late.lease)]) == [Settlement.LAPSED]

    async def test_a_result_that_comes_again_replaces_nothing(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue)
        for result in (b"1", b"2"):
            assert await broker.ack([got.lease], results=[result]) == [Settlement.DONE]
        kept = await broker.kept(queue.scope, got.lease.message_id)
        assert kept is not None
        assert kept.data == b"1"

    async def test_a_message_that_is_cancelled_again_was_cancelled(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue)
        gone = new_message_id()
        ids = [got.lease.message_id, gone]
        assert await broker.cancel(queue, ids) == [Touched.REVOKED, Touched.GONE]
        assert await broker.cancel(queue, ids) == [Touched.DONE, Touched.GONE]
        assert await broker.cancel(queue, ids[:1] * 2) == [Touched.DONE] * 2
        assert (await broker.state(queue)).odometers["cancelled"] == 1

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

    async def test_a_lease_that_may_not_lapse_is_still_its_holders(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        """Its settlement may be on its way through PostgreSQL."""
        await broker.define(queue, PLAIN)
        shard, now = shard_of(queue.scope, shards=broker.shards), manual_clock.now_ms()
        await self.put(broker, queue, *"abcd")
        got = await self.take(broker, queue, limit=4, lease_ms=1_000)
        leases = [one.lease for one in got]
        await broker.let_lapse(shard, until_ms=now + 999)
        try:
            manual_clock.advance(2_000)
            assert await self.take(broker, queue) == []
            assert (await broker.sweep(shard)).lapsed == 0
            assert await broker.ack(leases[:1]) == [Settlement.DONE]
            assert await broker.nack([Failure(lease=leases[1], delay_ms=60_000)]) == [Settlement.DONE]
            assert await broker.extend(leases[2:3], lease_ms=60_000) == [Settlement.DONE]
            await broker.let_lapse(shard, until_ms=now + 500)
            assert await self.take(broker, queue) == []
            await broker.let_lapse(shard, until_ms=now + 1_000)
            manual_clock.advance(250)
            (again,) = await self.take(broker, queue)
            assert (again.message_id, again.attempt) == (got[3].message_id, 2)
            assert await broker.ack(leases[3:]) == [Settlement.LAPSED]
        finally:
            await broker.let_lapse(shard, until_ms=1 << 52)

    async def test_a_shard_whose_keeper_is_missed_goes_on_alone_after_a_while(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        shard, now = shard_of(queue.scope, shards=broker.shards), manual_clock.now_ms()
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, queue, lease_ms=1_000)
        await broker.let_lapse(shard, until_ms=now)
        try:
            # A server that was stopped for an hour did not miss anybody in it.
            manual_clock.advance(HOUR_MS)
            assert await self.take(broker, queue) == []
            manual_clock.advance(KEPT_MS - 1)
            assert await self.take(broker, queue) == []
            # A queue whose lease may not lapse is looked at again four times per second.
            manual_clock.advance(250)
            (again,) = await self.take(broker, queue)
            assert again.message_id == got.message_id
        finally:
            await broker.let_lapse(shard, until_ms=1 << 52)

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
