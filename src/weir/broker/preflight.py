"""Before Redis is trusted with messages: is it new enough, does it keep what it is given?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from weir.errors import BrokerUnavailable, Misconfigured

MINIMUM = (6, 2)
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisState:
    """What a Redis says about itself."""

    version: str
    mode: str
    append_only: bool
    append_fsync: str
    policy: str
    used_bytes: int
    max_bytes: int
    last_write_failed: bool

    def refusals(self) -> list[str]:
        """Reasons not to start: messages would be lost silently."""
        found = []
        if tuple(int(part) for part in self.version.split(".")[:2]) < MINIMUM:
            found.append(f"Redis {self.version} is too old; 6.2 or later is needed")
        if self.policy not in ("noeviction", _UNKNOWN):
            found.append(
                f"Redis may evict messages (`maxmemory-policy {self.policy}`); set it to `noeviction`"
            )
        return found

    def warnings(self) -> list[str]:
        """What an operator should know."""
        found = []
        if not self.append_only:
            found.append(
                "Redis keeps no append-only file, so a restart loses messages; `CONFIG SET appendonly yes`"
            )
        if self.last_write_failed:
            found.append("Redis could not write its append-only file lately; look at its disk")
        if self.max_bytes and self.used_bytes > 0.9 * self.max_bytes:
            found.append("Redis uses more than 90 % of its `maxmemory`; raise it or drain queues")
        return found


async def inspect_redis(url: str, *, timeout_s: float = 3.0) -> RedisState:
    """Ask a Redis how it is set up."""
    try:
        async with Redis.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 0)
        ) as client:
            info = await client.info()
            policy = await _config(client, "maxmemory-policy")
            fsync = await _config(client, "appendfsync")
    except RedisError as error:
        raise BrokerUnavailable(f"Redis does not answer ({error}); look at its log and its URL") from None
    return RedisState(
        version=str(info["redis_version"]),
        mode=str(info.get("redis_mode", "standalone")),
        append_only=bool(info.get("aof_enabled")),
        append_fsync=fsync,
        policy=str(info.get("maxmemory_policy", policy)),
        used_bytes=int(info.get("used_memory", 0)),
        max_bytes=int(info.get("maxmemory", 0)),
        last_write_failed=info.get("aof_last_write_status", "ok") != "ok",
    )


async def check_redis(url: str) -> None:
    """Refuse to start on a Redis that would lose messages silently."""
    refusals = (await inspect_redis(url)).refusals()
    if refusals:
        raise Misconfigured(refusals[0])


async def _config(client: Any, name: str) -> str:
    """A configuration value; hosted servers may forbid asking."""
    try:
        values = await client.config_get(name)
    except RedisError:
        return _UNKNOWN
    return str(values.get(name, _UNKNOWN))
