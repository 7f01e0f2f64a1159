"""Direct mode: a trusted client speaks to Redis as `weir worker` does, with the same promises."""

from __future__ import annotations

from dataclasses import dataclass

from weir.client.direct_consume import DirectDeliveries
from weir.client.direct_opening import DirectRedis, RedisAway
from weir.client.direct_push import DirectPushes
from weir.client.options import ClientOptions
from weir.client.transport import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """What a client has more in direct mode."""

    redis: DirectRedis
    pushes: DirectPushes
    deliveries: DirectDeliveries
    away: type[RedisAway] = RedisAway
    """Raised by deliveries that have to go through the API."""

    @classmethod
    def at(cls, url: str, *, options: ClientOptions, transport: Transport, blocking: bool) -> Direct:
        redis = DirectRedis(url, transport=transport, token=options.token, blocking=blocking)
        return cls(
            redis=redis,
            pushes=DirectPushes(redis, options, transport),
            deliveries=DirectDeliveries(redis),
        )

    async def aclose(self) -> None:
        await self.redis.aclose()
