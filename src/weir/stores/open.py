"""Opens stores for every process and command: waits, checks, connects, and closes in reverse order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from weir.broker.broker import BrokerActivity
from weir.broker.preflight import check_redis
from weir.broker.redis import RedisBroker
from weir.broker.runner import Client, RedisConnection
from weir.control.database import Database
from weir.control.migrate import verify_postgres
from weir.redis_client import connect
from weir.settings import StoreUrls
from weir.stores.ready import Say, postgres_ready, stores_ready

START_S = 10.0
"""How long a first connection to PostgreSQL may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The connected stores of a process that works on messages."""

    database: Database
    broker: RedisBroker
    redis: Client
    """For metric streams and the notes of processes; the broker has its own connections."""


async def open_stores(
    stack: AsyncExitStack,
    urls: StoreUrls,
    *,
    database: Database,
    shards: int,
    say: Say,
    activity: BrokerActivity | None = None,
) -> Stores:
    """Open `database` and connect to Redis; fail if Redis could lose messages or migrations are missing."""
    await stores_ready(urls, say=say)
    await check_redis(urls.redis)
    await start_database(stack, database)
    await verify_postgres(database)
    broker = RedisBroker(RedisConnection(url=urls.redis), shards=shards, activity=activity)
    stack.push_async_callback(broker.aclose)
    redis = connect(urls.redis)
    stack.push_async_callback(redis.aclose)
    return Stores(database=database, broker=broker, redis=redis)


async def start_database(stack: AsyncExitStack, database: Database) -> None:
    """Open a pool that `stack` closes; fail if no connection succeeds within `START_S`."""
    stack.push_async_callback(database.aclose)
    await database.open(wait_s=START_S)


@asynccontextmanager
async def opened_database(
    url: str, *, say: Say, max_size: int = 1, timeout_s: float = 2.0
) -> AsyncIterator[Database]:
    """Open only PostgreSQL, for a command that needs no other store and works without the migrations."""
    await postgres_ready(url, say=say)
    async with Database(url, max_size=max_size, timeout_s=timeout_s) as database:
        yield database
