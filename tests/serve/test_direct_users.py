"""The users of Redis for direct mode follow the tokens, whatever happens to Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from redis import Redis

from support.redis_cluster import RunningCluster
from support.servers import RunningServer, redis_server, start_server
from weir.broker.direct_users import VERBS, DirectUsers, user_name
from weir.broker.redis import RedisBroker
from weir.broker.runner import Client, RedisConnection, connect
from weir.broker.scripts import script
from weir.control.database import Database
from weir.control.principals import Role
from weir.control.token_texts import secret_of
from weir.control.tokens import NewToken, Token, Tokens
from weir.errors import InvalidInput
from weir.model.message import Failure, NewMessage, Settlement
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.serve.direct_users import DirectUserKeeper
from weir.spec.ir import QueueSpec
from weir.testing.clocks import ManualClock


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    running = start_server(lambda port: redis_server(tmp_path / "redis", port=port), log_folder=tmp_path)
    yield running
    running.stop()


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[Client]:
    client = connect(RedisConnection(url=server.url))
    yield client
    await client.aclose()


async def make(tokens: Tokens, scope: EnvironmentRef, **more: object) -> tuple[str, Token]:
    names = dict(zip(("organization", "project", "environment"), scope.names, strict=True))
    return await tokens.create(NewToken(name="t", role=Role.WRITE, direct=True, **names, **more))  # type: ignore[arg-type]


async def test_users_come_back_after_a_restart_and_end_with_their_tokens(
    server: RunningServer, client: Client, database: Database, environment: EnvironmentRef
) -> None:
    clock = ManualClock()
    tokens, users = Tokens(database, clock=clock), DirectUsers(client, shards=4)
    keeper = DirectUserKeeper(users, tokens, clock=clock)
    _, lasting = await make(tokens, environment)
    _, ending = await make(tokens, environment, lifetime_ms=1_000)
    await client.execute_command("ACL", "SETUSER", "weir-direct-foreign", "on")
    await keeper.run_round()
    assert [await users.exists(one.id) for one in (lasting, ending)] == [True, True]
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    assert not await users.exists(lasting.id)
    clock.advance(1_000)
    await keeper.run_round()
    assert [await users.exists(one.id) for one in (lasting, ending)] == [True, False]
    await client.execute_command("ACL", "SETUSER", user_name(ending.id), "on")
    await client.execute_command("ACL", "SETUSER", user_name("another"), "on")
    await keeper.run_round()
    assert [await users.exists(one) for one in (ending.id, "another")] == [False, True]


async def test_rights_of_an_older_version_are_renewed_when_a_process_starts(
    client: Client, database: Database, environment: EnvironmentRef
) -> None:
    tokens, users = Tokens(database), DirectUsers(client, shards=4)
    _, token = await make(tokens, environment)
    await client.execute_command("ACL", "SETUSER", user_name(token.id), "on", "+get")
    await DirectUserKeeper(users, tokens, clock=ManualClock()).run_round()
    rights = str(await client.execute_command("ACL", "LIST"))
    assert all(f"+evalsha|{script(verb).sha}" in rights for verb in VERBS)


async def test_a_user_runs_its_scripts_again_after_redis_lost_them(
    server: RunningServer, client: Client, database: Database, environment: EnvironmentRef
) -> None:
    tokens, users = Tokens(database), DirectUsers(client, shards=4)
    text, token = await make(tokens, environment)
    keeper = DirectUserKeeper(users, tokens, clock=ManualClock())
    trusted = RedisBroker(RedisConnection(url=server.url))
    queue = environment.queue("work")
    await trusted.define(queue, QueueSpec(name="work"))
    parts = urlsplit(server.url)
    own = parts._replace(netloc=f"{user_name(token.id)}:{secret_of(text)}@{parts.netloc.rpartition('@')[2]}")
    for lose in (lambda: None, server.kill, lambda: flush_scripts(server.url)):
        await asyncio.to_thread(lose)
        if lose == server.kill:
            await asyncio.to_thread(server.start)
        await keeper.run_round()
        broker = RedisBroker(RedisConnection(url=urlunsplit(own)), only_shard=shard_of(environment, shards=4))
        await broker.enqueue(queue, [NewMessage(payload=b"x")])
        (got,) = await broker.dequeue(queue, consumer="c")
        await broker.extend([got.lease], lease_ms=60_000)
        assert await broker.nack([Failure(lease=got.lease, delay_ms=0)]) == [Settlement.DONE]
        (got,) = await broker.dequeue(queue, consumer="c")
        assert await broker.ack([got.lease]) == [Settlement.DONE]
        await broker.aclose()
    await trusted.aclose()


def flush_scripts(url: str) -> None:
    with Redis.from_url(url) as redis:
        redis.script_flush()


async def test_every_node_of_a_cluster_gets_the_scripts_that_it_lacks(redis_cluster: RunningCluster) -> None:
    client = connect(RedisConnection(url=redis_cluster.url))
    users = DirectUsers(client, shards=4)
    await users.load_scripts()
    with Redis(port=redis_cluster.ports[1]) as node:
        node.script_flush()
        await users.load_scripts()
    for port in redis_cluster.ports:
        with Redis(port=port) as node:
            assert all(node.script_exists(*(script(verb).sha for verb in VERBS)))
    await client.aclose()


async def test_a_user_of_a_cluster_works_on_its_shard(
    redis_cluster: RunningCluster, database: Database, environment: EnvironmentRef
) -> None:
    client = connect(RedisConnection(url=redis_cluster.url))
    text, token = await make(Tokens(database), environment)
    users = DirectUsers(client, shards=4)
    await users.allow(token.id, digest=token.secret_sha256, environment=environment)
    assert await users.exists(token.id)
    parts = urlsplit(redis_cluster.url)
    address = parts.netloc.rpartition("@")[2]
    own = parts._replace(netloc=f"{user_name(token.id)}:{secret_of(text)}@{address}")
    trusted = RedisBroker(RedisConnection(url=redis_cluster.url))
    broker = RedisBroker(RedisConnection(url=urlunsplit(own)), only_shard=shard_of(environment, shards=4))
    queue = environment.queue("work")
    await trusted.define(queue, QueueSpec(name="work"))
    await broker.enqueue(queue, [NewMessage(payload=b"x")])
    (got,) = await broker.dequeue(queue, consumer="c", wait_ms=100)
    await broker.ack([got.lease])
    await users.remove(token.id)
    assert not await users.exists(token.id)
    for one in (broker, trusted, client):
        await one.aclose()


def test_a_token_for_direct_mode_names_one_environment_and_may_write() -> None:
    with pytest.raises(InvalidInput, match="belongs to one environment"):
        NewToken(name="t", role=Role.WRITE, organization="o", direct=True)
    with pytest.raises(InvalidInput, match="may write"):
        NewToken(name="t", role=Role.READ, organization="o", project="p", environment="e", direct=True)
