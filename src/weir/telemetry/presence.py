"""Notes which process served which environment, because a tenant may only see the processes that served it.

A process serves many tenants, and its counts are about all of them. So it notes which environments it served,
in two sets whose old members expire:

    weir:served:ENV       zset    processes that served an environment -> when they last did, in ms
    weir:serves:WORKER    zset    environments that a process served -> when it last did, in ms

ENV is the three names of an environment, joined by a zero byte, which no name contains.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from weir.errors import BrokerUnavailable
from weir.model.clock import Clock, SystemClock
from weir.model.durations import DAY_MS
from weir.model.names import EnvironmentRef
from weir.redis_client import DRIVER_ERRORS

_log = structlog.get_logger(__name__)

# As long as the minute tier keeps its rows by default.
KEEP_MS = 31 * DAY_MS
NOTE_EVERY_S = 60
"""How often an environment is noted again while a process serves it."""
MAX_LISTED = 1_000
_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingProcess:
    """A process that served an environment."""

    worker_id: str
    shared: bool
    """It served other environments too, so its counts do not belong to this one alone."""


class Presence:
    """Notes which environments a process serves: `note_served` remembers them, `run` writes them to Redis."""

    def __init__(
        self,
        redis: Redis | RedisCluster,
        *,
        worker_id: str,
        clock: Clock | None = None,
        interval_s: float = 1.0,
    ) -> None:
        self._redis = redis
        self._worker_id = worker_id
        self._clock = clock or SystemClock()
        self._interval_s = interval_s
        self._known: set[EnvironmentRef] = set()
        self._news: list[EnvironmentRef] = []

    def note_served(self, environment: EnvironmentRef) -> None:
        if environment not in self._known:
            self._known.add(environment)
            self._news.append(environment)

    async def flush(self) -> None:
        """Write the new environments to Redis; after a failure they stay for the next time."""
        while self._news:
            batch = self._news[:_BATCH]
            try:
                await self._write(batch)
            except DRIVER_ERRORS as error:
                _log.warning("cannot note which environments this process serves", error=str(error))
                return
            # Only after the write: environments of a failed batch are written again.
            del self._news[: len(batch)]

    async def run(self) -> None:
        """Flush for ever. Once a minute forget the known environments, so served ones are noted again."""
        while True:
            for _ in range(round(NOTE_EVERY_S / self._interval_s)):
                await asyncio.sleep(self._interval_s)
                await self.flush()
            self._known = set(self._news)

    async def _write(self, environments: list[EnvironmentRef]) -> None:
        now_ms = self._clock.now_ms()
        pipeline = self._redis.pipeline(transaction=False)
        notes = [(_served_key(one), self._worker_id) for one in environments]
        notes += [(_serves_key(self._worker_id), _text(one)) for one in environments]
        for key, member in notes:
            pipeline.zadd(key, {member: now_ms})
            # Members do not expire by themselves; the key expires as a whole if nobody writes to it.
            pipeline.zremrangebyscore(key, "-inf", now_ms - KEEP_MS)
            pipeline.pexpire(key, KEEP_MS)
        await pipeline.execute()


class ServingProcesses:
    """Reads from Redis which processes served an environment."""

    def __init__(self, redis: Redis | RedisCluster, *, clock: Clock | None = None) -> None:
        self._redis = redis
        self._clock = clock or SystemClock()

    async def of(self, environment: EnvironmentRef, *, since_ms: int) -> list[ServingProcess]:
        """The processes that served an environment since `since_ms`, newest first."""
        # A note may be that much older than the newest time at which the process served the environment.
        since_ms -= NOTE_EVERY_S * 1_000
        try:
            found: Any = await self._redis.zrevrangebyscore(
                _served_key(environment), "+inf", since_ms, start=0, num=MAX_LISTED
            )
            ids = [member.decode() for member in found]
            pipeline = self._redis.pipeline(transaction=False)
            for worker_id in ids:
                pipeline.zcount(_serves_key(worker_id), since_ms, "+inf")
            counts = await pipeline.execute()
        except DRIVER_ERRORS as error:
            raise BrokerUnavailable(f"Redis does not answer ({error}); try again", retry_after_s=1) from error
        # Notes older than `KEEP_MS` are gone: a process may have served others then, so it counts as shared.
        forgotten = since_ms < self._clock.now_ms() - KEEP_MS
        return [
            ServingProcess(worker_id=worker_id, shared=forgotten or count != 1)
            for worker_id, count in zip(ids, counts, strict=True)
        ]


def _served_key(environment: EnvironmentRef) -> str:
    return f"weir:served:{_text(environment)}"


def _serves_key(worker_id: str) -> str:
    return f"weir:serves:{worker_id}"


def _text(environment: EnvironmentRef) -> str:
    return "\x00".join(environment.names)
