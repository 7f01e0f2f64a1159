"""Consumers that wait for messages: how little they ask Redis meanwhile."""

from __future__ import annotations

from redis import Redis

from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.spec.ir import QueueSpec


async def test_a_consumer_that_waits_again_asks_once_before_it_sleeps_and_once_after(
    redis_url: str, environment: EnvironmentRef
) -> None:
    queue = environment.queue("q")
    broker = RedisBroker(RedisConnection(url=redis_url))
    await broker.define(queue, QueueSpec(name="q"))
    assert await broker.dequeue(queue, consumer="c", wait_ms=1) == []
    with Redis.from_url(redis_url) as redis:
        redis.config_resetstat()
        # Longer than all that is asked takes.
        assert await broker.dequeue(queue, consumer="c", wait_ms=200) == []
        assert redis.info("commandstats")["cmdstat_evalsha"]["calls"] == 2
        await broker.enqueue(queue, [NewMessage(payload=b"x")])
        redis.config_resetstat()
        assert len(await broker.dequeue(queue, consumer="c", wait_ms=1)) == 1
        assert redis.info("commandstats")["cmdstat_evalsha"]["calls"] == 1
    await broker.aclose()
