"""A connection to Redis for everything that is not a queue operation: bounded in time, nothing retried."""

from __future__ import annotations

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff


def connect(url: str, *, max_connections: int = 4) -> Redis:
    """A client for metric streams; more callers than connections wait their turn."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=5,
        socket_timeout=5,
        socket_connect_timeout=2,
        retry=Retry(NoBackoff(), 0),
    )
    client: Redis = Redis.from_pool(pool)
    return client
