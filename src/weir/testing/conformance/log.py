"""Promises about the log of a queue: each message that ends is in it, with its headers and payload."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from weir.broker.broker import Broker
from weir.errors import InvalidInput
from weir.model.durations import DAY_MS
from weir.model.inspection import MessageState
from weir.model.lives import LifeOutcome
from weir.model.logged import LoggedMessage
from weir.model.message import Failure
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec
from weir.testing.clocks import ManualClock
from weir.testing.conformance.base import PLAIN, Promises, message
from weir.testing.conformance.lives import ReadLives

ReadLog = Callable[[QueueRef], Awaitable[Sequence[LoggedMessage]]]
LOGGED = replace(PLAIN, log_ms=30 * DAY_MS)


class LogPromises(Promises):
    """A message that ends in a queue with a log is in that log, once."""

    async def test_a_log_holds_what_a_message_carried_beside_its_life(
        self, broker: Broker, queue: QueueRef, read_log: ReadLog, read_lives: ReadLives
    ) -> None:
        await broker.define(queue, LOGGED)
        await self.put(broker, queue, "hello", key="k", headers={"h": "v"}, idempotency_key="once")
        (delivery,) = await self.take(broker, queue)
        assert await read_log(queue) == []
        await broker.ack([delivery.lease])
        (life,) = await read_lives(queue)
        assert await read_log(queue) == [
            LoggedMessage(
                number=1,
                life=life,
                kept_ms=30 * DAY_MS,
                left_out=False,
                headers={"h": "v"},
                payload=b"hello",
                idempotency_key="once",
            )
        ]

    async def test_a_message_is_logged_however_it_ends(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock, read_log: ReadLog
    ) -> None:
        delivery = DeliveryPolicy(max_attempts=1, lease_ms=1_000)
        await broker.define(queue, QueueSpec(name=queue.queue, delivery=delivery, log_ms=DAY_MS))
        await self.put(broker, queue, "acked", "failed", "rejected", "lapsed", "revoked")
        acked, failed, rejected, _, revoked = await self.take(broker, queue)
        await self.put(broker, queue, "cancelled")
        await self.put(broker, queue, "expired", ttl_ms=500)
        page = await broker.list_messages(queue, MessageState.READY)
        (waiting,) = [one for one in page.messages if one.preview == b"cancelled"]
        await broker.cancel(queue, [waiting.message_id, revoked.message_id])
        await broker.ack([acked.lease])
        await broker.nack([Failure(lease=failed.lease, error="no")])
        await broker.dead_letter([Failure(lease=rejected.lease, error="no")])
        manual_clock.advance(2_000)
        assert await self.take(broker, queue) == []
        await broker.sweep(shard_of(queue.scope, shards=broker.shards))
        logged = {one.payload.decode(): one.life.outcome for one in await read_log(queue)}
        assert logged == {
            "acked": LifeOutcome.ACKED,
            "failed": LifeOutcome.DEAD,
            "rejected": LifeOutcome.DEAD,
            "lapsed": LifeOutcome.DEAD,
            "revoked": LifeOutcome.CANCELLED,
            "cancelled": LifeOutcome.CANCELLED,
            "expired": LifeOutcome.EXPIRED,
        }

    async def test_numbers_follow_each_other_in_the_order_of_the_ends(
        self, broker: Broker, queue: QueueRef, read_log: ReadLog
    ) -> None:
        """Also for keys that were freed, for retries, and for a call with many messages."""
        await broker.define(queue, replace(LOGGED, ordering=Ordering.PER_KEY))
        many = [message(f"{number:04d}" * 50, key=str(number)) for number in range(600)]
        await broker.enqueue(queue, [message("a", key="k"), message("b", key="k"), *many])
        deliveries = await self.take(broker, queue, limit=601)
        await broker.nack([Failure(lease=deliveries[7].lease, delay_ms=0)])
        (again,) = [one for one in await self.take(broker, queue) if one.attempt == 2]
        await broker.ack([one.lease for one in (*deliveries[:7], *deliveries[8:], again)])
        second = await self.take(broker, queue)
        await broker.ack([one.lease for one in second])
        logged = await read_log(queue)
        assert [one.number for one in logged] == list(range(1, 603))
        carried = {one.message_id: one.payload for one in (*deliveries, *second)}
        assert {one.life.message_id: one.payload for one in logged} == carried

    async def test_a_queue_without_a_log_writes_none_and_one_that_begins_later_goes_on_counting(
        self, broker: Broker, queue: QueueRef, read_log: ReadLog
    ) -> None:
        for promised in (PLAIN, LOGGED, PLAIN):
            await broker.define(queue, promised)
            await self.put(broker, queue, "x", "y")
            await broker.ack([one.lease for one in await self.take(broker, queue)])
        assert [one.number for one in await read_log(queue)] == [3, 4]

    async def test_large_messages_are_logged_whole(
        self, broker: Broker, queue: QueueRef, read_log: ReadLog
    ) -> None:
        await broker.define(queue, LOGGED)
        sizes = (900_000, 10, 70_000, 1 << 20)
        for size in sizes:
            await self.put(broker, queue, "x" * size, headers={"h": "v" * 60_000})
        await broker.ack([one.lease for one in await self.take(broker, queue)])
        logged = await read_log(queue)
        assert [len(one.payload) for one in logged] == list(sizes)
        assert {len(one.headers["h"]) for one in logged} == {60_000}

    @pytest.mark.parametrize("history", [0, 10])
    async def test_a_log_without_the_lives_of_all_messages_is_refused(
        self, broker: Broker, queue: QueueRef, history: int
    ) -> None:
        with pytest.raises(InvalidInput, match="a log needs the life of every message"):
            await broker.define(queue, replace(LOGGED, history=history))
