"""Delivery and leases: nobody else gets a leased message, and only its holder settles it."""

from __future__ import annotations

from msgspec.structs import replace

from weir.broker.broker import Broker
from weir.model.message import Failure, NewMessage, Settlement
from weir.model.names import EnvironmentRef, QueueRef
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
