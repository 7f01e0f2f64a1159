"""Limits, pause and fairness between queues and tenants."""

from __future__ import annotations

from dataclasses import replace

from weir.broker.broker import Broker, Shard
from weir.model.message import Delivery, Settlement
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.testing.conformance.base import PLAIN, Promises, texts


class TurnPromises(Promises):
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
