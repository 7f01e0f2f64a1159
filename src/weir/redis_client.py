"""Connections to Redis, standalone or Cluster: bounded in time, nothing retried.

The URL says which it is: `redis://` and `rediss://` (with TLS) are one server, `redis+cluster://` and
`rediss+cluster://` name any node of a cluster, which tells the client about the others.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

DRIVER_ERRORS: tuple[type[Exception], ...] = (
    exceptions.RedisError,
    exceptions.RedisClusterException,
    OSError,
)
"""Everything that the driver raises; the errors of a cluster are not `RedisError`s."""

_CLUSTER = "+cluster://"
# `PatientCluster` bounds its connections itself.
_UNBOUNDED = 1 << 20
_WRITING = ("writelines", "drain")
_ANSWER_S = 2
"""The wait for one answer, and again for a free connection, unless the caller says otherwise."""
_CONNECT_S = 1


def is_cluster(url: str) -> bool:
    """Whether the URL names a node of a cluster."""
    return url.partition("//")[0] + "//" in (f"redis{_CLUSTER}", f"rediss{_CLUSTER}")


def node_url(url: str) -> str:
    """The URL of the server that is named, without the mark of a cluster, as the driver spells it."""
    return url.replace(_CLUSTER, "://", 1) if is_cluster(url) else url


class PatientCluster(RedisCluster):
    """A cluster's client whose callers wait for a connection; the driver's own fails at once."""

    def __init__(self, *, room: int, patience_s: float, **options: Any) -> None:
        super().__init__(max_connections=_UNBOUNDED, **options)
        self._room = asyncio.Semaphore(room)
        self._patience_s = patience_s

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        async with asyncio.timeout(self._patience_s):
            await self._room.acquire()
        try:
            return await super().execute_command(*args, **options)
        except AttributeError as error:
            # The driver writes to a connection that another task closed meanwhile, because a slot moved.
            if error.obj is None and error.name in _WRITING:
                raise exceptions.ConnectionError("the connection was closed") from error
            raise
        finally:
            self._room.release()


def connect(
    url: str,
    *,
    max_connections: int = 4,
    answer_s: float = _ANSWER_S,
    connect_s: float = _CONNECT_S,
    wait_s: float = _ANSWER_S,
    **options: Any,
) -> Redis | RedisCluster:
    """A client that never retries by itself; a caller waits up to `wait_s` for a free connection."""
    options |= {
        "socket_timeout": answer_s,
        "socket_connect_timeout": connect_s,
        "retry": Retry(NoBackoff(), 0),
    }
    if is_cluster(url):
        return PatientCluster.from_url(node_url(url), room=max_connections, patience_s=wait_s, **options)
    pool = BlockingConnectionPool.from_url(url, max_connections=max_connections, timeout=wait_s, **options)
    client: Redis = Redis.from_pool(pool)
    return client
