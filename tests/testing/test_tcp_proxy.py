"""The misbehaving proxy misbehaves as it says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from support.tcp_proxy import TcpProxy


def connect(url: str) -> Redis:
    return Redis.from_url(url, socket_timeout=0.3, retry=Retry(NoBackoff(), 0))


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[TcpProxy]:
    async with TcpProxy.to(redis_url) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy: TcpProxy) -> AsyncIterator[Redis]:
    async with connect(proxy.url) as client:
        yield client


async def test_it_forwards_both_ways(client: Redis) -> None:
    assert await client.ping()


async def test_a_dropped_reply_hides_a_request_that_ran(proxy: TcpProxy, client: Redis) -> None:
    await client.set("proxy:counter", 0)
    proxy.drop_replies()
    with pytest.raises(RedisTimeoutError):
        await client.incr("proxy:counter")
    proxy.heal()
    assert await client.get("proxy:counter") == b"1"


async def test_one_reply_can_be_lost_with_its_connection(proxy: TcpProxy, client: Redis) -> None:
    await client.set("proxy:once", 0)
    proxy.drop_next_reply()
    with pytest.raises(RedisConnectionError):
        await client.incr("proxy:once")
    assert await client.incr("proxy:once") == 2


async def test_a_dropped_request_never_runs(proxy: TcpProxy, client: Redis) -> None:
    await client.set("proxy:unseen", 0)
    proxy.drop_requests()
    with pytest.raises(RedisTimeoutError):
        await client.incr("proxy:unseen")
    proxy.heal()
    assert await client.get("proxy:unseen") == b"0"


async def test_a_blackhole_keeps_silent(proxy: TcpProxy, client: Redis) -> None:
    await client.ping()
    proxy.blackhole()
    with pytest.raises(RedisTimeoutError):
        await client.ping()


async def test_a_delay_holds_replies_back(proxy: TcpProxy, client: Redis) -> None:
    await client.ping()
    proxy.delay(0.5)
    with pytest.raises(RedisTimeoutError):
        await client.ping()


async def test_a_refused_server_looks_gone_until_it_heals(proxy: TcpProxy, client: Redis) -> None:
    await client.ping()
    proxy.refuse()
    with pytest.raises(RedisConnectionError):
        await client.ping()
    proxy.heal()
    assert await client.ping()
