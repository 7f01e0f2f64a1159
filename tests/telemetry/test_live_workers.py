"""Who is alive: a worker that says so, one that takes it back, and one that says nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from support.redis_cluster import RunningCluster
from weir.errors import BrokerUnavailable
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.names import EnvironmentRef
from weir.redis_client import connect
from weir.telemetry.live_workers import AliveSignal, LiveWorker, LiveWorkers, QueueLoad


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


def worker_of(environment: EnvironmentRef) -> LiveWorker:
    """A worker that serves the test's tenant alone: the server is shared with other tests."""
    load = QueueLoad(queue=environment.queue("q: ✓"), held=3, running=2, running_ms=1_234)
    return LiveWorker(
        slots=2, free_slots=0, environment=environment, queues=frozenset({"q: ✓"}), loads=(load,)
    )


async def alive(register: LiveWorkers, environment: EnvironmentRef) -> list[LiveWorker]:
    return [one for one in await register.alive() if one.environment == environment]


async def shown(register: LiveWorkers, environment: EnvironmentRef, wanted: list[LiveWorker]) -> None:
    async with asyncio.timeout(10):
        while await alive(register, environment) != wanted:  # noqa: ASYNC110 - the state is in Redis
            await asyncio.sleep(0.01)


async def test_a_worker_is_alive_from_its_note_until_it_takes_it_back(
    redis: Redis, environment: EnvironmentRef
) -> None:
    register, worker = LiveWorkers(redis), worker_of(environment)
    signal = AliveSignal(redis, worker_id=uuid4().hex, look=lambda: worker, every_s=0.01)
    task = asyncio.create_task(signal.run())
    await shown(register, environment, [worker])
    worker = replace(worker, draining=True)
    await shown(register, environment, [worker])
    await cancel_and_wait([task])
    assert await alive(register, environment) == []


async def test_a_worker_that_says_nothing_more_is_gone_when_its_note_expires(
    redis: Redis, environment: EnvironmentRef
) -> None:
    worker_id = uuid4().hex
    signal = AliveSignal(redis, worker_id=worker_id, look=lambda: worker_of(environment), expires_ms=100)
    await signal.write()
    await shown(LiveWorkers(redis), environment, [])
    assert not await redis.sismember("weir:workers", worker_id), "nothing of it is left"
    await signal.write()
    assert await alive(LiveWorkers(redis), environment), "it was only late"


def test_a_worker_takes_what_its_options_name(environment: EnvironmentRef) -> None:
    worker = worker_of(environment)
    assert worker.takes(environment.queue("q: ✓"))
    assert not worker.takes(environment.queue("other"))
    assert not worker.takes(replace(environment, project="other").queue("q: ✓"))
    assert LiveWorker(slots=1, free_slots=1).takes(environment.queue("any"))
    assert not replace(worker, draining=True).takes(environment.queue("q: ✓"))


async def test_notes_are_kept_on_a_cluster_too(
    redis_cluster: RunningCluster, environment: EnvironmentRef
) -> None:
    client = connect(redis_cluster.url)
    worker = worker_of(environment)
    await AliveSignal(client, worker_id=uuid4().hex, look=lambda: worker).write()
    assert await alive(LiveWorkers(client), environment) == [worker]
    await client.aclose()


async def test_without_redis_nobody_knows() -> None:
    client = connect("redis://127.0.0.1:1")
    with pytest.raises(BrokerUnavailable):
        await LiveWorkers(client).alive()
    await client.aclose()
