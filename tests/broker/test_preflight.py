"""A Redis that would lose messages is refused before it gets any."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from weir.broker.preflight import RedisState, check_redis, inspect_redis
from weir.errors import BrokerUnavailable, Misconfigured

FINE = RedisState(
    name="Redis",
    version="7.2.1",
    mode="standalone",
    append_only=True,
    policy="noeviction",
    used_bytes=1,
    max_bytes=0,
    last_write_failed=False,
)


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


async def test_a_redis_that_may_evict_is_refused(redis_url: str, client: Redis) -> None:
    await client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(Misconfigured, match="set it to `noeviction`"):
            await check_redis(redis_url)
    finally:
        await client.config_set("maxmemory-policy", "noeviction")
    await check_redis(redis_url)


async def test_the_embedded_redis_raises_no_concern(redis_url: str) -> None:
    state = await inspect_redis(redis_url)
    assert state.refusals() + state.warnings() == []


async def test_a_redis_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(BrokerUnavailable, match="does not answer"):
        await inspect_redis("redis://127.0.0.1:1/0")


def test_an_old_redis_is_refused() -> None:
    old = RedisState(**{name: getattr(FINE, name) for name in RedisState.__slots__} | {"version": "6.0.9"})
    assert "too old" in old.refusals()[0]
    assert FINE.refusals() == []


def test_what_an_operator_should_know_is_said() -> None:
    values = {name: getattr(FINE, name) for name in RedisState.__slots__}
    assert "loses messages" in RedisState(**values | {"append_only": False}).warnings()[0]
    assert "disk" in RedisState(**values | {"last_write_failed": True}).warnings()[0]
    assert "90 %" in RedisState(**values | {"used_bytes": 95, "max_bytes": 100}).warnings()[0]
