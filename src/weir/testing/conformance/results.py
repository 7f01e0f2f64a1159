"""Results: kept for a day with the ack of their message. Progress is kept before, cancellation instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weir.broker.broker import Broker
from weir.errors import InvalidInput, TooLarge
from weir.model.ids import new_message_id
from weir.model.limits import MAX_BATCH, MAX_RESULT_BYTES
from weir.model.message import Kept, KeptKind, Settlement
from weir.model.names import QueueRef
from weir.testing.clocks import ManualClock
from weir.testing.conformance.base import PLAIN, Promises, message


def result(data: bytes) -> Kept:
    return Kept(kind=KeptKind.RESULT, data=data)


class Results(Promises):
    async def test_the_result_of_a_message_is_kept_with_its_ack(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        await broker.enqueue(queue, [message(name) for name in ("first", "second", "third")])
        got = await self.take(broker, queue, limit=3)
        answers = await broker.ack([one.lease for one in got], results=[b'{"n": 1}', None, b"[3]"])
        assert answers == [Settlement.DONE] * 3
        found = [await broker.kept(queue.scope, one.message_id) for one in got]
        assert found == [result(b'{"n": 1}'), None, result(b"[3]")]
        assert await broker.kept(queue.scope, new_message_id()) is None

    async def test_a_lapsed_lease_keeps_no_result(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await broker.enqueue(queue, [message("one")])
        (got,) = await self.take(broker, queue)
        manual_clock.advance(PLAIN.delivery.lease_ms + 1)
        assert await broker.ack([got.lease], results=[b"1"]) == [Settlement.LAPSED]
        assert not await broker.keep_progress(got.lease, b"2")
        assert await broker.kept(queue.scope, got.message_id) is None

    async def test_a_lapsed_lease_keeps_no_result_beside_one_that_is_held(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        await broker.enqueue(queue, [message("lapsed"), message("held")])
        (lapsed,) = await self.take(broker, queue, limit=1, lease_ms=1_000)
        (held,) = await self.take(broker, queue, limit=1)
        manual_clock.advance(1_001)
        answers = await broker.ack([lapsed.lease, held.lease], results=[b"1", b"2"])
        assert answers == [Settlement.LAPSED, Settlement.DONE]
        found = [await broker.kept(queue.scope, one.message_id) for one in (lapsed, held)]
        assert found == [None, result(b"2")]

    async def test_progress_is_kept_until_the_result_replaces_it(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        await broker.enqueue(queue, [message("one")])
        (got,) = await self.take(broker, queue)
        for progress in (b"1", b"2"):
            assert await broker.keep_progress(got.lease, progress)
        assert await broker.kept(queue.scope, got.message_id) == Kept(kind=KeptKind.PROGRESS, data=b"2")
        await broker.ack([got.lease], results=[b"true"])
        assert await broker.kept(queue.scope, got.message_id) == result(b"true")

    async def test_a_cancelled_message_is_known_as_cancelled(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        sent = [message("leased"), message("waits")]
        await broker.enqueue(queue, sent)
        await self.take(broker, queue)
        await broker.cancel(queue, [one.id for one in sent])
        found = [await broker.kept(queue.scope, one.id) for one in sent]
        assert found == [Kept(kind=KeptKind.CANCELLED, queue=queue.queue)] * 2

    async def test_many_messages_are_asked_at_once_whether_they_were_cancelled(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        sent = [message(name) for name in ("done", "waits", "gone", "leased")]
        ids = [one.id for one in sent]
        await broker.enqueue(queue, sent)
        (done,) = await self.take(broker, queue, limit=1)
        await broker.ack([done.lease], results=[b'"c"'])
        await broker.cancel(queue, [ids[2]])
        many = [*ids, *(new_message_id() for _ in range(MAX_BATCH)), ids[2]]
        found = await broker.were_cancelled(queue.scope, many)
        assert [at for at, cancelled in enumerate(found) if cancelled] == [2, len(many) - 1]
        assert len(found) == len(many)
        assert await broker.were_cancelled(queue.scope, []) == []
        other = replace(queue.scope, environment="another")
        assert await broker.were_cancelled(other, ids) == [False] * 4

    async def test_results_that_are_too_large_or_too_few_are_refused(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        await broker.enqueue(queue, [message("one")])
        (got,) = await self.take(broker, queue)
        with pytest.raises(TooLarge, match=f"{MAX_RESULT_BYTES}"):
            await broker.ack([got.lease], results=[b"x" * (MAX_RESULT_BYTES + 1)])
        with pytest.raises(InvalidInput, match="2 results for 1 leases"):
            await broker.ack([got.lease], results=[b"1", b"2"])
        most = b"x" * MAX_RESULT_BYTES
        await broker.ack([got.lease], results=[most])
        assert await broker.kept(queue.scope, got.message_id) == result(most)

    async def test_each_member_of_a_group_is_counted_once(self, broker: Broker, queue: QueueRef) -> None:
        async def finish(group: str, member: int) -> bool:
            return await broker.finish_member(queue.scope, group, member=member, of=3)

        assert [await finish("a", member) for member in (0, 0, 2, 2)] == [False] * 4
        assert not await finish("b", 1)
        assert [await finish("a", member) for member in (1, 1)] == [True] * 2
        with pytest.raises(InvalidInput, match="member"):
            await finish("a", 3)
