"""Reads where the metric streams end, so that a reader can tell an idle shard from one that is behind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import ResponseError

from weir.errors import BrokerUnavailable
from weir.redis_client import DRIVER_ERRORS
from weir.telemetry.streams import stream_key, switch_key
from weir.telemetry.switch import ShardSwitch, switch_of


class RedisTails:
    """Asks Redis for the newest id of each shard's stream."""

    def __init__(self, client: Redis | RedisCluster, *, shards: int) -> None:
        self._client = client
        self._shards = shards

    async def tails(self, metric: str) -> Mapping[int, tuple[int, int]]:
        """The newest id ever written, by shard; shards without any event are left out."""
        found = await asyncio.gather(*(self._tail(metric, shard) for shard in range(self._shards)))
        return {shard: tail for shard, tail in enumerate(found) if tail is not None}

    async def switches(self) -> Sequence[ShardSwitch]:
        """The switch of every shard."""
        # One after the other: many first calls at once break the driver's client of a cluster.
        return [await self._switch(shard) for shard in range(self._shards)]

    async def _switch(self, shard: int) -> ShardSwitch:
        try:
            return switch_of(shard, await cast(Any, self._client.hgetall(switch_key(shard))))
        except DRIVER_ERRORS as error:
            raise BrokerUnavailable(f"Redis does not answer ({error}); try again", retry_after_s=1) from error

    async def _tail(self, metric: str, shard: int) -> tuple[int, int] | None:
        try:
            info = await self._client.xinfo_stream(stream_key(metric, shard))
        except ResponseError:
            return None
        except DRIVER_ERRORS as error:
            raise BrokerUnavailable(f"Redis does not answer ({error}); try again", retry_after_s=1) from error
        text = info["last-generated-id"]
        time_ms, _, sequence = (text.decode() if isinstance(text, bytes) else text).partition("-")
        return int(time_ms), int(sequence)
