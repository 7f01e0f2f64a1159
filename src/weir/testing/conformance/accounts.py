"""Accounts: the state and the odometers of a queue, for as long as its name exists."""

from __future__ import annotations

import pytest

from weir.broker.broker import Broker
from weir.errors import Conflict
from weir.model.inspection import Touched
from weir.model.message import Failure
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.testing.clocks import ManualClock
from weir.testing.conformance.base import PLAIN, Promises, texts


class Accounts(Promises):
    async def test_a_queue_that_comes_back_goes_on_counting(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "a", "b")
        await broker.ack([one.lease for one in await self.take(broker, queue)])
        await broker.pause(queue)
        await broker.forget(queue)
        await broker.define(queue, PLAIN)
        await self.put(broker, queue, "c")
        state = await broker.state(queue)
        assert (state.depth, state.odometers["enqueued"], state.odometers["acked"]) == (1, 3, 2)
        assert not state.paused
        assert texts(await self.take(broker, queue)) == ["c"]

    async def test_a_queue_knows_that_it_was_asked_for_messages_in_vain_or_not(
        self, broker: Broker, environment: EnvironmentRef
    ) -> None:
        asked, served, other = (environment.queue(name) for name in ("asked", "served", "other"))
        for queue in (asked, served, other):
            await broker.define(queue, PLAIN)
        await self.put(broker, served, "a")
        assert [(await broker.state(queue)).popped for queue in (asked, served, other)] == [False] * 3
        assert await self.take(broker, asked) == []
        assert texts(await self.take(broker, environment)) == ["a"]
        await broker.pause(asked)
        states = {state.queue: state.popped for state in await broker.states(environment)}
        assert states == {asked: True, served: True, other: False}

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
        assert await broker.cancel(queue, [got[4].message_id]) == [Touched.REVOKED]
        state = await broker.state(queue)
        o = state.odometers
        left = o["enqueued"] - o["acked"] - o["dead"] - o["expired"] - o["cancelled"]
        assert state.depth + state.running == left
        assert (state.depth, state.running, o["dequeued"], o["nacked"]) == (3, 1, 6, 1)

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
