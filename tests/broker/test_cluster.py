"""Every script stays in one slot: the promises hold on a real cluster of three nodes."""

from __future__ import annotations

import asyncio
import gc
import itertools
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from uuid import uuid4

import pytest
from redis.asyncio import Connection
from redis.crc import key_slot

from support.indexes import check_indexes
from support.lives import emitted_lives, emitted_log
from support.redis_cluster import RunningCluster
from weir.broker import keys
from weir.broker.broker import Shard
from weir.broker.metrics_switch import MetricsSwitch
from weir.broker.preflight import check_redis, inspect_redis
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection, connect
from weir.errors import BrokerUnavailable, Misconfigured
from weir.model.ids import NamedCall
from weir.model.message import Enqueue, Failure, NewMessage, Settlement
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec
from weir.telemetry.store import StreamStore
from weir.testing.clocks import ManualClock
from weir.testing.conformance import BrokerConformance
from weir.testing.conformance.lives import ReadLives
from weir.testing.conformance.log import ReadLog

SHARDS = 8


class TestClusterBroker(BrokerConformance):
    """Gates, named calls and the allowance included."""

    @pytest.fixture
    async def broker(
        self, manual_clock: ManualClock, redis_cluster: RunningCluster
    ) -> AsyncIterator[RedisBroker]:
        broker = RedisBroker(RedisConnection(url=redis_cluster.url), clock=manual_clock)
        yield broker
        await broker.aclose()

    @pytest.fixture
    def read_lives(self, broker: RedisBroker) -> ReadLives:
        return partial(emitted_lives, broker)

    @pytest.fixture
    def read_log(self, broker: RedisBroker) -> ReadLog:
        return partial(emitted_log, broker)


@pytest.fixture
async def broker(redis_cluster: RunningCluster) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(RedisConnection(url=redis_cluster.url, timeout_s=1), shards=SHARDS)
    yield broker
    await broker.aclose()
    with warnings.catch_warnings():
        # When the map of slots changes, the driver leaves open connections to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def tenants(environment: EnvironmentRef) -> list[EnvironmentRef]:
    """Environments of all shards, so that every node has some."""
    candidates = (
        EnvironmentRef(organization=environment.organization, project="{x}:*", environment=f"e{number}")
        for number in itertools.count()
    )
    return [
        next(tenant for tenant in candidates if shard_of(tenant, shards=SHARDS) == place % SHARDS)
        for place in range(12)
    ]


async def test_every_verb_works_on_a_cluster(broker: RedisBroker, environment: EnvironmentRef) -> None:
    everyone = tenants(environment)
    spec = QueueSpec(
        name="work",
        ordering=Ordering.PER_KEY,
        delivery=DeliveryPolicy(max_attempts=2, initial_backoff_ms=0),
    )
    for tenant in everyone:
        queue = tenant.queue("work")
        await broker.define(queue, spec)
        await broker.limit(tenant, 10)
        messages = [NewMessage(payload=b"%d" % n, key=f"{{k{n % 2}}}", ttl_ms=60_000) for n in range(4)]
        await broker.enqueue(queue, messages)
        await broker.pause(queue)
        await broker.resume(queue)
    got = []
    for shard in range(SHARDS):
        found = await broker.dequeue(Shard(shard), consumer="c", limit=1_000)
        got += [one for one in found if one.queue.scope in everyone]
        await broker.sweep(shard)
        await broker.heartbeat(shard)
    assert len(got) == 24
    assert set(await broker.extend([one.lease for one in got], lease_ms=9_000)) == {Settlement.DONE}
    assert set(await broker.ack([one.lease for one in got[:12]])) == {Settlement.DONE}
    assert set(await broker.nack([Failure(lease=one.lease) for one in got[12:18]])) == {Settlement.DONE}
    assert set(await broker.dead_letter([Failure(lease=one.lease) for one in got[18:]])) == {Settlement.DONE}
    dead = []
    for shard in range(SHARDS):
        mine = [one for one in await broker.take_dead(shard) if one.queue.scope in everyone]
        dead += mine
        await broker.drop_dead(shard, [one.message_id for one in mine])
    assert len(dead) == 6
    states = [state for tenant in everyone for state in await broker.states(tenant)]
    assert sum(state.depth for state in states) == 48 - 12 - 6
    assert sum(state.running for state in states) == 0


async def test_a_consumer_of_a_cluster_is_woken(broker: RedisBroker, environment: EnvironmentRef) -> None:
    queue = environment.queue("work")
    await broker.define(queue, QueueSpec(name="work"))
    waiting = asyncio.create_task(broker.dequeue(queue, consumer="c", wait_ms=10_000))
    await asyncio.sleep(0.1)
    await broker.enqueue(queue, [NewMessage(payload=b"x")])
    assert len(await asyncio.wait_for(waiting, 3)) == 1


async def test_a_call_of_unknown_outcome_is_settled_on_every_shard(
    broker: RedisBroker, environment: EnvironmentRef
) -> None:
    for tenant in tenants(environment):
        queue, call = tenant.queue("work"), NamedCall(slot=uuid4().hex, id="1")
        await broker.define(queue, QueueSpec(name="work"))
        shard = shard_of(tenant, shards=SHARDS)
        await broker.allow_direct(shard, until_ms=await broker.now_ms(shard) + 60_000)
        (answer,) = await broker.enqueue(queue, [NewMessage(payload=b"x")], entry=call)
        assert answer.outcome is Enqueue.ACCEPTED
        assert [one.is_done for one in await broker.settle_call(queue, call)] == [True]


async def test_more_callers_than_connections_wait_their_turn(
    redis_cluster: RunningCluster, environment: EnvironmentRef
) -> None:
    broker = RedisBroker(RedisConnection(url=redis_cluster.url, max_connections=2))
    queue = environment.queue("work")
    await broker.define(queue, QueueSpec(name="work"))
    await asyncio.gather(*(broker.enqueue(queue, [NewMessage(payload=b"x")]) for _ in range(100)))
    assert (await broker.state(queue)).depth == 100
    await broker.aclose()


async def test_a_node_that_dies_is_unavailable_and_comes_back_with_its_messages(
    redis_cluster: RunningCluster, broker: RedisBroker, environment: EnvironmentRef
) -> None:
    queues = [tenant.queue("work") for tenant in tenants(environment)]
    for queue in queues:
        await broker.define(queue, QueueSpec(name="work"))
        await broker.enqueue(queue, [NewMessage(payload=b"x")])
    await asyncio.to_thread(redis_cluster.kill, 1)
    try:
        answers = await asyncio.gather(*map(broker.state, queues), return_exceptions=True)
    finally:
        await asyncio.to_thread(redis_cluster.start, 1)
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    assert failed
    assert {type(error) for error in failed} == {BrokerUnavailable}
    assert [(await broker.state(queue)).depth for queue in queues] == [1] * len(queues)


async def test_a_cluster_that_is_away_is_unavailable() -> None:
    broker = RedisBroker(RedisConnection(url="redis+cluster://127.0.0.1:1/0"))
    with pytest.raises(BrokerUnavailable):
        await broker.states(EnvironmentRef(organization="o", project="p", environment="e"))
    await broker.aclose()


async def test_the_scheme_of_the_url_must_fit_the_server(
    redis_cluster: RunningCluster, redis_url: str
) -> None:
    await check_redis(redis_cluster.url)
    assert (await inspect_redis(redis_cluster.url)).mode == "cluster"
    with pytest.raises(Misconfigured, match=r"write `redis\+cluster://"):
        await check_redis(redis_cluster.url.replace("+cluster", ""))
    with pytest.raises(Misconfigured, match="not a cluster"):
        await check_redis(redis_url.replace("redis://", "redis+cluster://"))


async def test_every_shard_of_a_cluster_is_switched_in_one_act(redis_cluster: RunningCluster) -> None:
    switch = MetricsSwitch(RedisConnection(url=redis_cluster.url), shards=16)
    try:
        off = await switch.switch(on=False, by="anna", reason="a load test")
        off.require_all()
        assert [one.shard for one in off.shards if one.off] == list(range(16))
        store = StreamStore(redis_cluster.url)
        assert all(one.off for one in await asyncio.to_thread(store.read_switches, shards=16))
        store.close()
    finally:
        on = await switch.switch(on=True, by="anna", reason="")
        await switch.aclose()
    assert (on.off, on.mixed, on.silent) == (False, False, {})


@pytest.mark.parametrize("moved", [0, 4], ids=["no key has moved", "some keys have moved"])
async def test_a_script_is_whole_or_not_begun_while_its_slot_moves(
    redis_cluster: RunningCluster, broker: RedisBroker, environment: EnvironmentRef, moved: int
) -> None:
    """Keys that a script does not declare may be on either node; half a script would lose messages."""
    queue, shard = environment.queue("work"), shard_of(environment, shards=SHARDS)
    spec = QueueSpec(name="work", delivery=DeliveryPolicy(max_attempts=3, initial_backoff_ms=0))
    await broker.define(queue, spec)
    await broker.enqueue(queue, [NewMessage(payload=b"%d" % n) for n in range(8)])
    got = await broker.dequeue(queue, consumer="c", limit=4, lease_ms=60_000)
    leases = [one.lease for one in got]
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: broker.nack([Failure(lease=lease) for lease in leases[:2]]),
        lambda: broker.ack(leases[2:]),
        lambda: broker.dequeue(queue, consumer="c", limit=4),
        lambda: broker.enqueue(queue, [NewMessage(payload=b"new")]),
        lambda: broker.cancel(queue, [one.message_id for one in got]),
        lambda: broker.sweep(shard),
    ]
    slot = key_slot(keys.shard_key(shard, "timers"))
    source, target = await asyncio.to_thread(redis_cluster.begin_move, slot)
    try:
        await asyncio.to_thread(redis_cluster.move_keys, slot, source=source, target=target, count=moved)
        for call in calls:
            with pytest.raises(BrokerUnavailable, match="is moving this slot") as refused:
                await call()
            assert refused.value.retry_after_s == 1
    finally:
        await asyncio.to_thread(redis_cluster.end_move, slot, source=source, target=target)
    state = await broker.state(queue)
    assert (state.depth, state.running) == (4, 4)
    looking = connect(RedisConnection(url=redis_cluster.url))
    await check_indexes(looking.execute_command, queue, shards=SHARDS)
    await looking.aclose()
    assert await broker.ack(leases) == [Settlement.DONE] * 4
    rest = await broker.dequeue(queue, consumer="c", limit=10)
    assert await broker.ack([one.lease for one in rest]) == [Settlement.DONE] * 4


async def test_a_connection_that_the_driver_closes_under_a_call_is_tried_again(
    broker: RedisBroker, environment: EnvironmentRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = environment.queue("work")
    await broker.define(queue, QueueSpec(name="work"))
    send, left = Connection._send_packed_command, [1]

    async def closed_meanwhile(connection: Connection, command: Iterable[bytes]) -> None:
        if left:
            left.pop()
            await connection.disconnect(nowait=True)
        await send(connection, command)

    monkeypatch.setattr(Connection, "_send_packed_command", closed_meanwhile)
    await broker.enqueue(queue, [NewMessage(payload=b"x")])
    assert not left
    assert (await broker.state(queue)).depth == 1
