"""What Redis keeps for whoever waits for a message, or for a group of tasks, goes away by itself."""

from __future__ import annotations

from redis import Redis

from weir.broker import keys
from weir.broker.layout import id_bytes
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.ids import new_id
from weir.model.limits import GROUP_KEPT_MS, RESULT_KEPT_MS
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.spec.ir import QueueSpec


async def test_results_progress_cancellations_and_groups_go_away_by_themselves(
    redis_url: str, environment: EnvironmentRef
) -> None:
    broker = RedisBroker(RedisConnection(url=redis_url))
    queue, group = environment.queue("work"), new_id()
    await broker.define(queue, QueueSpec(name=queue.queue))
    await broker.enqueue(queue, [NewMessage(payload=b"x") for _ in range(3)])
    done, working, cancelled = await broker.dequeue(queue, consumer="c", limit=3)
    await broker.ack([done.lease], results=[b"1"])
    await broker.keep_progress(working.lease, b"2")
    await broker.cancel(queue, [cancelled.message_id])
    await broker.finish_member(environment, group, member=0, of=2)
    ids = [id_bytes(one.message_id) for one in (done, working, cancelled)]
    start, ident = (
        keys.prefix(shard_of(environment, shards=broker.shards)),
        keys.environment_ident(environment),
    )
    with Redis.from_url(redis_url) as redis:
        for key in [start + b"k:" + ident + one for one in ids]:
            assert RESULT_KEPT_MS - 60_000 < redis.pttl(key) <= RESULT_KEPT_MS, key
        left_ms = redis.pttl(start + b"g:" + ident + group.encode())
        assert GROUP_KEPT_MS - 60_000 < left_ms <= GROUP_KEPT_MS
    await broker.aclose()
