"""Checks Redis before Weir trusts it with messages: is it new enough, and does it keep its data?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError

from weir.broker.failures import translated
from weir.broker.keys import EVERY_WAKE
from weir.errors import BrokerUnavailable, Misconfigured
from weir.redis_client import DRIVER_ERRORS, is_cluster, node_url
from weir.telemetry.streams import SHARDS

MINIMUM = (6, 2)
_UNKNOWN = "unknown"
_Ask = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisState:
    """What a Redis says about itself."""

    name: str
    """Redis or Valkey, each with a version of its own."""
    version: str
    mode: str
    append_only: bool
    policy: str
    used_bytes: int
    max_bytes: int
    last_write_failed: bool
    loading: bool = False
    """Redis still reads its data from the disk, and cannot answer for them."""
    replica: bool = False
    process_id: int = 0
    unpublished: str = ""
    """Why a script may not publish; a script that is refused in its middle has written a half."""

    def release(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split(".")[:2])

    def refusals(self) -> list[str]:
        """Reasons not to start: messages would be lost silently."""
        found = []
        if self.replica:
            found.append("this Redis is a replica and takes no writes; give the URL of its primary")
        if self.unpublished:
            found.append(
                f"the user of Redis may not publish ({self.unpublished}); `ACL SETUSER … &weir:*` allows it"
            )
        if self.release() < MINIMUM:
            found.append(f"{self.name} {self.version} is too old; 6.2 or later is needed")
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
        if self.loading:
            found.append("Redis is loading its data; processes that start now wait for it")
        if self.last_write_failed:
            found.append("Redis could not write its append-only file lately; look at its disk")
        if self.max_bytes and self.used_bytes > 0.9 * self.max_bytes:
            found.append("Redis uses more than 90 % of its `maxmemory`; raise it or drain queues")
        return found


async def inspect_redis(url: str, *, timeout_s: float = 3.0) -> RedisState:
    """Ask a Redis how it is set up; for a cluster, the worst of what its primaries answer."""
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
    }
    try:
        async with Redis.from_url(node_url(url), **options) as client:
            named = await _inspect(client.execute_command)
        if not is_cluster(url) or named.mode != "cluster":
            return named
        async with RedisCluster.from_url(node_url(url), **options) as cluster:
            nodes = [node.execute_command for node in cluster.get_primaries()]
            return _weakest(await asyncio.gather(*map(_inspect, nodes)))
    except AuthenticationError as error:
        raise Misconfigured(
            f"Redis refuses the user or password ({error}); correct `WEIR_REDIS_URL`"
        ) from None
    except NoPermissionError as error:
        raise Misconfigured(
            f"the user of Redis lacks a right ({error}); `ACL SETUSER … ~* &weir:* +@all` "
            "gives it all that Weir needs"
        ) from None
    except DRIVER_ERRORS as error:
        raise BrokerUnavailable(f"Redis does not answer ({error}); look at its log and its URL") from None


def _weakest(nodes: Sequence[RedisState]) -> RedisState:
    """The worst of everything that the nodes say."""
    full = max(nodes, key=lambda node: node.used_bytes / node.max_bytes if node.max_bytes else 0)
    oldest = min(nodes, key=RedisState.release)
    return replace(
        full,
        name=oldest.name,
        version=oldest.version,
        append_only=all(node.append_only for node in nodes),
        policy=min((node.policy for node in nodes), key=lambda policy: policy == "noeviction"),
        last_write_failed=any(node.last_write_failed for node in nodes),
        replica=any(node.replica for node in nodes),
        unpublished=next((node.unpublished for node in nodes if node.unpublished), ""),
        loading=any(node.loading for node in nodes),
    )


async def _inspect(ask: _Ask) -> RedisState:
    info = await ask("INFO")
    policy = await _ask_config(ask, "maxmemory-policy")
    replica, loading = info.get("role") == "slave", bool(info.get("loading"))
    return RedisState(
        name=str(info.get("server_name", "redis")).capitalize(),
        # Valkey also tells the version of the Redis that it descends from.
        version=str(info.get("valkey_version", info["redis_version"])),
        # Valkey calls it `server_mode`.
        mode=str(info.get("redis_mode", info.get("server_mode", "standalone"))),
        append_only=bool(info.get("aof_enabled")),
        policy=str(info.get("maxmemory_policy", policy)),
        used_bytes=int(info.get("used_memory", 0)),
        max_bytes=int(info.get("maxmemory", 0)),
        last_write_failed=info.get("aof_last_write_status", "ok") != "ok",
        loading=loading,
        replica=replica,
        process_id=int(info.get("process_id", 0)),
        unpublished="" if replica or loading else await _try_to_publish(ask),
    )


async def written_shards(ask: _Ask) -> int | None:
    """The number of shards that a Redis was begun with; None if nobody wrote it yet."""
    with translated():
        stored = await ask("GET", SHARDS)
    return None if stored is None else int(stored)


async def check_redis(url: str) -> None:
    """Refuse a Redis that would lose messages silently."""
    state = await inspect_redis(url)
    refusals = [*wrong_scheme(url, state), *state.refusals()]
    if refusals:
        raise Misconfigured(refusals[0])


async def is_loading(url: str) -> bool:
    """Whether Redis still reads its data; False if it does not answer."""
    try:
        return (await inspect_redis(url)).loading
    except BrokerUnavailable:
        return False


def wrong_scheme(url: str, state: RedisState) -> list[str]:
    """Reasons not to start: a plain client cannot use a cluster, nor a cluster's client a single Redis."""
    if (state.mode == "cluster") == is_cluster(url):
        return []
    if is_cluster(url):
        return ["this Redis is not a cluster; write `redis://…` in `WEIR_REDIS_URL` (`rediss://…` with TLS)"]
    return ["this Redis is a node of a cluster; write `redis+cluster://…` in `WEIR_REDIS_URL`"]


def folder_of_server(process_id: int) -> Path | None:
    """The working folder of a server on this machine, which holds its files; None if it cannot be seen."""
    process = Path(f"/proc/{process_id}")
    try:
        if not (process / "comm").read_text().startswith(("redis", "valkey")):
            return None
        (process / "cwd").readlink()
    except OSError:
        return None
    return process / "cwd"


async def _try_to_publish(ask: _Ask) -> str:
    """Publish as scripts do; the reason if the user may not, which is the default of users since Redis 7."""
    try:
        await ask("EVAL", "return redis.call('PUBLISH', ARGV[1], '')", 0, EVERY_WAKE)
    except ResponseError as error:
        return str(error).partition("script:")[0].strip()
    return ""


async def _ask_config(ask: _Ask, name: str) -> str:
    """A configuration value; hosted servers may forbid asking."""
    try:
        values = await ask("CONFIG GET", name)
    except RedisError:
        return _UNKNOWN
    return str(values.get(name, _UNKNOWN))
