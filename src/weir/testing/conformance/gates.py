"""Gates: while operations of a partition wait, direct pushes to it are held back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from weir.broker.broker import Broker, ForOperations, Gated, GateRule
from weir.model.ids import NamedCall, new_id, new_message_id
from weir.model.message import Enqueue, Failure
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import Retention
from weir.testing.clocks import ManualClock
from weir.testing.conformance.base import PLAIN, Promises, message


class GatePromises(Promises):
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
        assert await outcomes(entry=GateRule.PASS) == [Enqueue.ACCEPTED] * 3
        await broker.open_gates(queue, [one])
        assert await outcomes() == gated
        await broker.open_gates(queue, [one, two])
        assert await outcomes() == [Enqueue.ACCEPTED] * 3
        await broker.close_gates(queue, [Gated(key=None, operation="3")])
        assert await outcomes() == [Enqueue.ACCEPTED, Enqueue.ACCEPTED, Enqueue.GATED]

    async def test_a_gate_outlives_its_queue(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        await broker.close_gates(queue, [Gated(key=None, operation="op")])
        await broker.forget(queue)
        await broker.define(queue, PLAIN)
        (answer,) = await broker.enqueue(queue, [message("direct")])
        assert answer.outcome is Enqueue.GATED
        (answer,) = await broker.enqueue(queue, [message("queued")], entry=ForOperations(ids=["op"]))
        assert answer.outcome is Enqueue.ACCEPTED

    async def test_a_void_operation_never_runs_and_holds_no_gate(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        void, other = Gated(key="k", operation=new_id()), Gated(key="k", operation=new_id())
        assert await broker.close_gates(queue, [void, other]) == [0, 0]
        assert await broker.void_gates(queue, [void]) == [True]
        assert await broker.void_gates(queue, [void]) == [True]
        assert await broker.close_gates(queue, [void, other]) == [None, 0]
        (answer,) = await broker.enqueue(
            queue, [message("void", key="k")], entry=ForOperations(ids=[void.operation])
        )
        assert answer.outcome is Enqueue.GATED
        await broker.open_gates(queue, [other])
        (answer,) = await broker.enqueue(queue, [message("direct", key="k")])
        assert answer.outcome is Enqueue.ACCEPTED

    async def test_an_operation_that_has_begun_or_is_finished_cannot_be_made_void(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        gate = Gated(key=None, operation=new_id())
        await broker.close_gates(queue, [gate])
        await broker.enqueue(queue, [message("in")], entry=ForOperations(ids=[gate.operation]))
        assert await broker.void_gates(queue, [gate]) == [False]
        await broker.open_gates(queue, [gate])
        assert await broker.void_gates(queue, [gate]) == [False]
        assert [got.payload for got in await self.take(broker, queue)] == [b"in"]

    async def test_an_operation_puts_in_each_of_its_messages_once(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, replace(PLAIN, retention=Retention(max_depth=2)))
        batch = [message(name, key="k") for name in ("a", "b", "c", "d")]

        async def push() -> list[Enqueue]:
            answers = await broker.enqueue(queue, batch, entry=ForOperations(ids=["1", "1", "1", "2"]))
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

    async def test_what_queued_operations_will_bring_takes_room_from_everybody_but_them(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, replace(PLAIN, retention=Retention(max_depth=5)))
        await self.put(broker, queue, "a", "b")
        gates = [
            Gated(key=key, operation=key, messages=count) for key, count in (("x", 2), ("y", 4), ("z", 1))
        ]
        assert await broker.close_gates(queue, gates, within_room=True) == [2, 1, 0]
        assert (await broker.state(queue)).odometers["refused"] == 4

        async def outcomes(*names: str, **options: Any) -> list[Enqueue]:
            batch = [message(name, key=name[0]) for name in names]
            return [answer.outcome for answer in await broker.enqueue(queue, batch, **options)]

        assert await outcomes("x9", "y9", "z9", "other") == [Enqueue.FULL] * 4
        assert await outcomes("x9", entry=GateRule.PASS) == [Enqueue.FULL]
        assert (
            await outcomes("x1", "x2", "y1", entry=ForOperations(ids=["x", "x", "y"]))
            == [Enqueue.ACCEPTED] * 3
        )
        assert await outcomes("z9") == [Enqueue.FULL]
        await broker.ack([one.lease for one in await self.take(broker, queue, limit=2)])
        assert await outcomes("x9", "z1") == [Enqueue.GATED, Enqueue.ACCEPTED]
        await broker.open_gates(queue, gates)
        assert await outcomes("x3", "x4") == [Enqueue.ACCEPTED, Enqueue.FULL]

    async def test_an_operation_that_gives_up_gives_its_room_back(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        spec = replace(PLAIN, retention=Retention(max_depth=3))
        await broker.define(queue, spec)
        gate = Gated(key="k", operation="op", messages=9)
        assert await broker.close_gates(queue, [gate]) == [9]
        assert await broker.close_gates(queue, [gate], within_room=True) == [9]
        await broker.enqueue(queue, [message("a", key="k")], entry=ForOperations(ids=["op"]))
        await broker.ack([one.lease for one in await self.take(broker, queue)])
        await broker.forget(queue)
        await broker.define(queue, spec)
        assert [one.outcome for one in await broker.enqueue(queue, [message("b")])] == [Enqueue.FULL]
        await broker.forget(queue)
        await broker.open_gates(queue, [gate])
        await broker.define(queue, spec)
        await self.put(broker, queue, "b", "c", "d")

    async def test_a_repeated_key_is_answered_though_the_gate_is_closed(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        first, again = message("a", idempotency_key="i"), message("a", idempotency_key="i")
        other = message("b", idempotency_key="i")
        await broker.enqueue(queue, [first])
        await broker.close_gates(queue, [Gated(key=None, operation="op", messages=1)])
        answers = await broker.enqueue(queue, [again, other, message("c")])
        assert [one.outcome for one in answers] == [Enqueue.DUPLICATE, Enqueue.KEY_REUSED, Enqueue.GATED]
        assert answers[0].message_id == first.id

    async def test_gates_that_stay_closed_are_found_by_the_brokers_clock(
        self, broker: Broker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        await broker.define(queue, PLAIN)
        shard = shard_of(queue.scope, shards=broker.shards)
        old, opened, young = (Gated(key=key, operation=f"op {key}") for key in ("k", None, "ü"))

        async def stale() -> list[Gated]:
            found, skip = [], 0
            while page := await broker.stale_gates(shard, older_ms=30_000, skip=skip, limit=2):
                found += [gate for ref, gate in page if ref == queue]
                skip += len(page)
            return found

        await broker.close_gates(queue, [old, opened])
        manual_clock.advance(10_000)
        await broker.close_gates(queue, [young, old])
        manual_clock.advance(20_000)
        assert await stale() == [old, opened]
        await broker.open_gates(queue, [opened])
        assert await stale() == [old]
        manual_clock.advance(10_000)
        assert await stale() == [old, young]
        await broker.open_gates(queue, [old, young])

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
            (first,) = await broker.enqueue(
                queue, [message("a")], entry=NamedCall(slot=new_id(), id=new_id())
            )
            assert first.outcome is Enqueue.ACCEPTED
            manual_clock.advance(1)
            (second,) = await broker.enqueue(
                queue, [message("b")], entry=NamedCall(slot=new_id(), id=new_id())
            )
            assert second.outcome is Enqueue.GATED
            (nobodys,) = await broker.enqueue(queue, [message("d")])
            assert nobodys.outcome is Enqueue.ACCEPTED
            (through,) = await broker.enqueue(queue, [message("c")], entry=GateRule.PASS)
            assert through.outcome is Enqueue.ACCEPTED
            for forbidden, outcome in ((True, Enqueue.GATED), (False, Enqueue.ACCEPTED)):
                await broker.allow_direct(shard, until_ms=manual_clock.now_ms() + 100)
                if forbidden:
                    await broker.forbid_direct(shard)
                (third,) = await broker.enqueue(
                    queue, [message("e")], entry=NamedCall(slot=new_id(), id=new_id())
                )
                assert third.outcome is outcome
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

    async def test_the_last_errors_are_those_of_messages_that_are_not_done(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        await broker.enqueue(queue, [message(name) for name in "abc"])
        first, second, _ = await self.take(broker, queue, limit=3)
        assert await broker.last_errors(queue, limit=10) == []
        await broker.nack([Failure(lease=first.lease, error="refused ö", delay_ms=60_000)])
        await broker.nack([Failure(lease=second.lease, error="bad", delay_ms=0)])
        assert sorted(await broker.last_errors(queue, limit=10)) == ["bad", "refused ö"]
        assert len(await broker.last_errors(queue, limit=1)) == 1
        (again,) = await self.take(broker, queue)
        await broker.ack([again.lease])
        assert await broker.last_errors(queue, limit=10) == ["refused ö"]

    async def test_peek_tells_the_headers_of_what_waits_or_is_leased(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        plain, told = message("p"), message("t", headers={"from": "ö"}, key="k")
        await broker.enqueue(queue, [plain, told])
        assert await broker.peek(queue, plain.id) == {}
        assert await broker.peek(queue, told.id) == {"from": "ö"}
        got = await self.take(broker, queue, limit=2)
        assert await broker.peek(queue, told.id) == {"from": "ö"}
        await broker.ack([one.lease for one in got])
        assert await broker.peek(queue, told.id) is None
