"""How a client enters direct mode: it asks the API once, and finds the Redis that the API uses."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from weir.broker.blocking import BlockingBroker
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.client.errors import ClientError
from weir.client.transport import Transport
from weir.control.token_texts import secret_of
from weir.errors import BrokerUnavailable, Misconfigured, WeirError
from weir.model.ids import CallSlots
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of

ANSWER_S = 1.0
"""How long one answer of Redis may take. A second try may take as long again; then the API is asked."""
AWAY_S = 1.0
"""How long the API is asked instead after a call that Redis did not answer."""


class RedisAway(Exception):
    """Redis cannot be used now: the API has to do the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectOptions:
    """What the API tells a client in direct mode about its environment."""

    environment: EnvironmentRef
    token_id: str
    shards: int
    epoch: str | None
    redis_user: str | None
    max_payload_bytes: int
    max_depth: int

    @classmethod
    def of(cls, document: dict[str, Any]) -> DirectOptions:
        """The options in an answer. Members that a newer API added are ignored."""
        environment = EnvironmentRef(
            **{name: document[name] for name in ("organization", "project", "environment")}
        )
        names = ("token_id", "shards", "epoch", "redis_user", "max_payload_bytes", "max_depth")
        return cls(environment=environment, **{name: document[name] for name in names})


class OpenedRedis:
    """The Redis of one environment, as one client uses it."""

    def __init__(self, options: DirectOptions, broker: RedisBroker) -> None:
        self.options = options
        self.broker = broker
        self.calls = CallSlots(owner=options.token_id)
        self.shard = shard_of(options.environment, shards=options.shards)
        self.queue = lru_cache(maxsize=4_096)(options.environment.queue)
        self.is_right = False
        """Whether it is known to be the Redis of the API."""
        self._away_until = 0.0

    @property
    def is_away(self) -> bool:
        """Whether Redis did not answer a moment ago."""
        return self._away_until > 0 and time.monotonic() < self._away_until

    def note_away(self) -> None:
        """Do without Redis for a moment, because it did not answer or refused this client."""
        self._away_until = time.monotonic() + AWAY_S

    async def check(self) -> None:
        """Before the first call, check that this is the Redis of the API; ClientError if it is not.

        If Redis does not answer, it is noted as away, and a later call checks again.
        """
        if self.is_right or self.is_away:
            return
        try:
            await _check_epoch(self.broker, self.options)
            if self.options.epoch is not None:
                await self.broker.join_epoch(self.options.epoch, shard=self.shard)
            self.is_right = True
        except (BrokerUnavailable, Misconfigured):
            self.note_away()

    async def aclose(self) -> None:
        """Let Redis forget the names of this client's calls, and close the connections."""
        slots = self.calls.take_free()
        # If a call was sent twice, its bytes may still be on their way. Its slot must stay, so that Redis
        # sees that they are late. Such slots, and the slots of clients that crash, are forgotten after an
        # hour without a call.
        if slots and not self.broker.repeated and not self.is_away:
            try:
                await self.broker.forget_calls(self.shard, slots, idle_ms=0)
            except WeirError:
                self.note_away()
        await self.broker.aclose()


class DirectRedis:
    """Opens the Redis at `url` when it is first needed."""

    def __init__(self, url: str, *, transport: Transport, token: str, blocking: bool) -> None:
        self._url = url
        self._transport = transport
        self._token = token
        self._blocking = blocking
        self._opened: OpenedRedis | None = None
        # Callers that come while Redis is being opened wait in line, and so keep their order.
        self._opening = asyncio.Lock()
        self._opening_in_threads = threading.Lock()

    @property
    def blocking(self) -> bool:
        """Whether coroutines must not suspend."""
        return self._blocking

    async def open(self) -> OpenedRedis:
        """The Redis, which is opened and checked at first use. It may be away."""
        opened = self._opened
        if opened is not None and (opened.is_right or opened.is_away) and not self._opening.locked():
            return opened
        if self._blocking:
            with self._opening_in_threads:
                return await self._open_and_check()
        async with self._opening:
            return await self._open_and_check()

    async def _open_and_check(self) -> OpenedRedis:
        if self._opened is None:
            options = DirectOptions.of(await self._transport.send("GET", "/api/v1/direct", member="epoch"))
            self._opened = OpenedRedis(options, self._broker(options))
        await self._opened.check()
        return self._opened

    async def open_usable(self) -> OpenedRedis:
        """The Redis as `open` returns it; RedisAway if it cannot be used now."""
        opened = await self.open()
        if opened.is_away:
            raise RedisAway
        return opened

    async def aclose(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.aclose()

    def _broker(self, options: DirectOptions) -> RedisBroker:
        return (BlockingBroker if self._blocking else RedisBroker)(
            RedisConnection(url=_with_user(self._url, options, self._token), timeout_s=ANSWER_S),
            shards=options.shards,
            max_payload=options.max_payload_bytes,
            only_shard=shard_of(options.environment, shards=options.shards),
        )


def _with_user(url: str, options: DirectOptions, token: str) -> str:
    """The URL with the user that belongs to the token, unless it names one itself."""
    parts = urlsplit(url)
    if options.redis_user is None or "@" in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=f"{options.redis_user}:{secret_of(token)}@{parts.netloc}"))


async def _check_epoch(broker: RedisBroker, options: DirectOptions) -> None:
    """ClientError if this is not the Redis of the API: messages in another Redis would never be found."""
    try:
        found = await broker.epoch()
    except Misconfigured as error:
        # Redis before version 7 cannot allow a user to read this key and not to write it.
        if error.extra.get("forbidden"):
            return
        raise
    if found != options.epoch:
        raise ClientError(
            "the Redis of this URL is not the one that the API uses; give the URL that the API has, "
            "with the number of its database"
        )
