"""Whom a process served: noted once in a while, forgotten in time, and never lost to an outage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from support.tcp_proxy import TcpProxy
from weir.errors import BrokerUnavailable
from weir.model.names import EnvironmentRef
from weir.redis_client import connect
from weir.telemetry.presence import KEEP_MS, NOTE_EVERY_S, Presence, ServingProcess, ServingProcesses
from weir.testing.clocks import ManualClock

HOUR_MS = 3_600_000


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


def another() -> EnvironmentRef:
    return EnvironmentRef(organization=f"o {uuid4().hex}", project="p:*", environment="e ✓")


async def test_a_process_that_serves_one_environment_is_not_shared(
    redis: Redis, environment: EnvironmentRef, manual_clock: ManualClock
) -> None:
    worker_id = uuid4().hex
    presence = Presence(redis, worker_id=worker_id, clock=manual_clock)
    presence.note_served(environment)
    presence.note_served(environment)
    await presence.flush()
    servers = ServingProcesses(redis, clock=manual_clock)
    since_ms = manual_clock.now_ms()
    assert await servers.of(environment, since_ms=since_ms) == [
        ServingProcess(worker_id=worker_id, shared=False)
    ]
    other = another()
    assert await servers.of(other, since_ms=since_ms) == []
    presence.note_served(other)
    await presence.flush()
    for one in (environment, other):
        assert await servers.of(one, since_ms=since_ms) == [ServingProcess(worker_id=worker_id, shared=True)]


async def test_who_served_before_the_window_does_not_count(
    redis: Redis, environment: EnvironmentRef, manual_clock: ManualClock
) -> None:
    presence = Presence(redis, worker_id=uuid4().hex, clock=manual_clock)
    presence.note_served(environment)
    await presence.flush()
    since_ms = manual_clock.now_ms() + NOTE_EVERY_S * 1_000
    servers = ServingProcesses(redis, clock=manual_clock)
    assert len(await servers.of(environment, since_ms=since_ms)) == 1
    assert await servers.of(environment, since_ms=since_ms + 1) == []


async def test_what_is_forgotten_counts_as_shared(
    redis: Redis, environment: EnvironmentRef, manual_clock: ManualClock
) -> None:
    presence = Presence(redis, worker_id=uuid4().hex, clock=manual_clock)
    presence.note_served(environment)
    await presence.flush()
    long_ago = manual_clock.now_ms() - KEEP_MS - HOUR_MS
    (found,) = await ServingProcesses(redis, clock=manual_clock).of(environment, since_ms=long_ago)
    assert found.shared


async def test_an_outage_delays_the_note_and_the_answer_says_so(
    redis_url: str, environment: EnvironmentRef
) -> None:
    async with TcpProxy.to(redis_url) as proxy:
        client = connect(proxy.url)
        presence, servers = Presence(client, worker_id=uuid4().hex), ServingProcesses(client)
        presence.note_served(environment)
        proxy.refuse()
        proxy.cut()
        await presence.flush()
        with pytest.raises(BrokerUnavailable):
            await servers.of(environment, since_ms=0)
        proxy.heal()
        await presence.flush()
        assert len(await servers.of(environment, since_ms=0)) == 1
        await client.aclose()
