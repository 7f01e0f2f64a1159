"""A Redis that would lose messages is refused before it gets any."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from redis.asyncio import Redis

from support.servers import RunningServer, redis_server, start_server
from weir.broker.preflight import RedisState, check_redis, inspect_redis
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.errors import BrokerUnavailable, Misconfigured
from weir.serve.probes import redis_probe

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


@pytest.fixture
def second_redis(quick_path: Path) -> Iterator[RunningServer]:
    server = start_server(lambda port: redis_server(quick_path / "second", port=port), log_folder=quick_path)
    yield server
    server.stop()


async def test_a_replica_is_refused(redis_url: str, second_redis: RunningServer) -> None:
    primary = urlsplit(redis_url)
    async with Redis.from_url(second_redis.url) as replica:
        await replica.execute_command("CONFIG", "SET", "masterauth", primary.password or "")
        await replica.execute_command("REPLICAOF", primary.hostname, primary.port)
        with pytest.raises(Misconfigured, match="is a replica and takes no writes"):
            await check_redis(second_redis.url)


@pytest.fixture
async def user_url(redis_url: str, client: Redis) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Makes a user with these rights, and returns the URL that it connects with."""

    async def make(*rights: str) -> str:
        await client.execute_command("ACL", "SETUSER", "weir-test", "reset", "on", ">pw", "~*", *rights)
        parts = urlsplit(redis_url)
        return urlunsplit(parts._replace(netloc=f"weir-test:pw@{parts.hostname}:{parts.port}"))

    yield make
    await client.execute_command("ACL", "DELUSER", "weir-test")


async def test_a_user_that_may_not_publish_is_refused(
    user_url: Callable[..., Awaitable[str]],
) -> None:
    url = await user_url("resetchannels", "+@all")
    with pytest.raises(Misconfigured, match=r"may not publish .*&weir:\*"):
        await check_redis(url)
    await check_redis(await user_url("resetchannels", "&weir:*", "+@all"))


async def test_a_user_that_may_not_ask_for_the_state_is_told_which_right_it_lacks(
    user_url: Callable[..., Awaitable[str]],
) -> None:
    with pytest.raises(Misconfigured, match=r"lacks a right .*info"):
        await check_redis(await user_url("&*", "+@all", "-info"))


async def test_a_policy_that_evicts_is_noticed_while_serving(redis_url: str, client: Redis) -> None:
    broker = RedisBroker(RedisConnection(url=redis_url), shards=1)
    probe = redis_probe(broker, url=redis_url)
    await probe.check()
    await client.config_set("maxmemory-policy", "allkeys-random")
    try:
        with pytest.raises(Misconfigured, match="may evict messages"):
            await probe.check()
    finally:
        await client.config_set("maxmemory-policy", "noeviction")
        await broker.aclose()
