"""Direct mode: a trusted client speaks to Redis as `weir worker` does, with the same promises."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from weir.client.deliveries import Deliveries, SettleRequest
from weir.client.direct_consume import DirectDeliveries
from weir.client.direct_opening import DirectRedis, RedisAway
from weir.client.direct_push import DirectPushes
from weir.client.options import ClientOptions
from weir.client.transport import Transport
from weir.client.values import ReceivedMessage, SettleStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """The parts that a client has only in direct mode."""

    redis: DirectRedis
    pushes: DirectPushes
    deliveries: Deliveries

    @classmethod
    def at(
        cls, url: str, *, options: ClientOptions, transport: Transport, behind: Deliveries, blocking: bool
    ) -> Direct:
        """Make the parts for the Redis at this URL. While Redis cannot be used, calls go through the API."""
        redis = DirectRedis(url, transport=transport, token=options.token, blocking=blocking)
        return cls(
            redis=redis,
            pushes=DirectPushes(redis, options, transport),
            deliveries=DirectFirst(DirectDeliveries(redis), behind),
        )

    async def aclose(self) -> None:
        await self.redis.aclose()


class DirectFirst:
    """`Deliveries` that go to Redis, and through the API while Redis is away."""

    def __init__(self, direct: DirectDeliveries, behind: Deliveries) -> None:
        self._direct = direct
        self._behind = behind

    async def pop(
        self, queue: str | None, *, limit: int, wait_ms: int, lease_ms: int | None, consumer: str | None
    ) -> list[ReceivedMessage]:
        with suppress(RedisAway):
            return await self._direct.pop(
                queue, limit=limit, wait_ms=wait_ms, lease_ms=lease_ms, consumer=consumer
            )
        return await self._behind.pop(
            queue, limit=limit, wait_ms=wait_ms, lease_ms=lease_ms, consumer=consumer
        )

    async def settle(self, message: ReceivedMessage, request: SettleRequest) -> SettleStatus:
        with suppress(RedisAway):
            return await self._direct.settle(message, request)
        return await self._behind.settle(message, request)

    async def ack_many(self, messages: Sequence[ReceivedMessage]) -> list[SettleStatus]:
        with suppress(RedisAway):
            return await self._direct.ack_many(messages)
        return await self._behind.ack_many(messages)

    async def extend(self, message: ReceivedMessage, *, lease_ms: int) -> ReceivedMessage:
        with suppress(RedisAway):
            return await self._direct.extend(message, lease_ms=lease_ms)
        return await self._behind.extend(message, lease_ms=lease_ms)
