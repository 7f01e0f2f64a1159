"""Every script stays in one slot: the promises hold on a real cluster of three nodes."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from weir.broker.broker import Shard
from weir.broker.redis import RedisBroker
from weir.broker.runner import Connection
from weir.embedded.ports import free_port
from weir.embedded.redis import redis_binary
from weir.model.message import Failure, NewMessage, Settlement
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec

NODES, SLOTS = 3, 16_384


def _cluster_port() -> int:
    """A port whose cluster bus port, 10,000 above, is a port too."""
    while (port := free_port()) > 55_000:
        pass
    return port


@pytest.fixture(scope="module")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster")
    binary, _ = redis_binary()
    ports = [_cluster_port() for _ in range(NODES)]
    processes = [_start(binary, folder / str(port), port) for port in ports]
    clients = [Redis(port=port) for port in ports]
    try:
        _join(clients, ports)
        yield f"redis://127.0.0.1:{ports[0]}/0"
    finally:
        for client in clients:
            client.close()
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _start(binary: Path, folder: Path, port: int) -> subprocess.Popen[bytes]:
    folder.mkdir()
    options = {
        "port": port,
        "bind": "127.0.0.1",
        "dir": folder,
        "save": "",
        "cluster-enabled": "yes",
        "cluster-node-timeout": 2_000,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return subprocess.Popen([binary, *words], stdout=subprocess.DEVNULL)


def _join(clients: list[Redis], ports: list[int]) -> None:
    for number, client in enumerate(clients):
        _wait(client.ping)
        mine = range(number * SLOTS // NODES, (number + 1) * SLOTS // NODES)
        client.execute_command("CLUSTER", "ADDSLOTS", *mine)
        client.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[0])
    for client in clients:
        _wait(lambda client=client: client.cluster("info")["cluster_state"] == "ok")
        _wait(lambda client=client: client.cluster("info")["cluster_known_nodes"] == str(NODES))


def _wait(ready: object) -> None:
    async def poll() -> None:
        async with asyncio.timeout(30):
            while True:
                try:
                    if ready():  # type: ignore[operator]
                        return
                except RedisError:
                    pass
                await asyncio.sleep(0.05)

    asyncio.run(poll())


@pytest.fixture
async def broker(cluster_url: str) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(Connection(url=cluster_url, cluster=True), shards=8)
    yield broker
    await broker.aclose()


async def test_every_verb_works_on_a_cluster(broker: RedisBroker, environment: EnvironmentRef) -> None:
    tenants = [
        EnvironmentRef(organization=environment.organization, project="{x}:*", environment=f"e{n}")
        for n in range(12)
    ]
    assert len({shard_of(tenant, shards=8) for tenant in tenants}) > 3
    spec = QueueSpec(
        name="work",
        ordering=Ordering.PER_KEY,
        delivery=DeliveryPolicy(max_attempts=2, initial_backoff_ms=0),
    )
    for tenant in tenants:
        queue = tenant.queue("work")
        await broker.define(queue, spec)
        await broker.limit(tenant, 10)
        messages = [NewMessage(payload=b"%d" % n, key=f"{{k{n % 2}}}", ttl_ms=60_000) for n in range(4)]
        await broker.enqueue(queue, messages)
        await broker.pause(queue)
        await broker.resume(queue)
    got = []
    for shard in range(8):
        got += await broker.dequeue(Shard(shard), consumer="c", limit=100)
        await broker.sweep(shard)
        await broker.heartbeat(shard)
    assert len(got) == 24
    assert set(await broker.extend([one.lease for one in got], lease_ms=9_000)) == {Settlement.DONE}
    assert set(await broker.ack([one.lease for one in got[:12]])) == {Settlement.DONE}
    assert set(await broker.nack([Failure(lease=one.lease) for one in got[12:18]])) == {Settlement.DONE}
    assert set(await broker.dead_letter([Failure(lease=one.lease) for one in got[18:]])) == {Settlement.DONE}
    dead = []
    for shard in range(8):
        found = await broker.take_dead(shard)
        dead += found
        await broker.drop_dead(shard, [one.message_id for one in found])
    assert len(dead) == 6
    states = [state for tenant in tenants for state in await broker.states(tenant)]
    assert sum(state.depth for state in states) == 48 - 12 - 6
    assert sum(state.running for state in states) == 0


async def test_a_consumer_of_a_cluster_is_woken(broker: RedisBroker, environment: EnvironmentRef) -> None:
    queue = environment.queue("work")
    await broker.define(queue, QueueSpec(name="work"))
    waiting = asyncio.create_task(broker.dequeue(queue, consumer="c", wait_ms=10_000))
    await asyncio.sleep(0.1)
    await broker.enqueue(queue, [NewMessage(payload=b"x")])
    assert len(await asyncio.wait_for(waiting, 3)) == 1
