"""Channels and their consumers: who gets a published message, and who owns its dead letters."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from weir.channels.consumers import ensure_consumers
from weir.control.audit_log import AuditedChange, record
from weir.control.changes import begin_change
from weir.control.database import Connection, Database, Row, execute, fetch, fetch_one
from weir.control.scopes import scope_names, scope_of
from weir.control.sql import NamedQuery, load_queries
from weir.control.token_texts import mint, parse
from weir.errors import Conflict, InvalidInput, NotFound, Unauthenticated
from weir.model.clock import Clock, SystemClock
from weir.model.names import EnvironmentRef, QueueRef, check_name
from weir.spec.ir import AppSpec, ChannelSpec, ConsumerSpec

SQL = load_queries("weir.channels", "channels.sql")
CHANNEL_HEADER = "X-Broker-Channel-Token"
CONSUMER_HEADER = "X-Broker-Consumer-Token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A channel of one environment."""

    environment: EnvironmentRef
    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelConsumer:
    """A consumer of a channel, with the queue that holds its messages."""

    channel: Channel
    id: str
    name: str
    queue: QueueRef

    @property
    def actor(self) -> str:
        return f"consumer:{self.id}"


class Channels:
    """The register of channels. Tokens are shown once and stored hashed."""

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def put(self, environment: EnvironmentRef, channel: ChannelSpec, *, by: str) -> None:
        """Create a channel, or change its name and consumers; they keep their tokens and dead letters."""
        async with self._database.transaction() as connection:
            await begin_change(connection, environment, now_ms=self._clock.now_ms())
            await self._check_unowned(connection, environment, channel.id)
            await self._put(connection, environment, channel, by=by)

    async def remove(self, environment: EnvironmentRef, channel_id: str, *, by: str) -> None:
        """Remove a channel; its consumers' queues and their dead letters stay, without a channel."""
        async with self._database.transaction() as connection:
            await begin_change(connection, environment, now_ms=self._clock.now_ms())
            await self._check_unowned(connection, environment, channel_id)
            if not await self._remove(connection, environment, channel_id, by=by):
                raise NotFound(f"there is no channel `{channel_id}` here")

    async def follow(
        self, connection: Connection, environment: EnvironmentRef, before: AppSpec | None, after: AppSpec
    ) -> None:
        """Make the channels match an applied spec, in the transaction that applies it."""
        wanted = {channel.id for channel in after.channels}
        for channel in before.channels if before else ():
            if channel.id not in wanted:
                await self._remove(connection, environment, channel.id, by="spec")
        for channel in after.channels:
            await self._put(connection, environment, channel, by="spec")

    async def of(self, environment: EnvironmentRef) -> list[ChannelSpec]:
        """Every channel of an environment with its consumers."""
        channels = await self._database.fetch(SQL["channels_of"], **scope_names(environment))
        consumers = await self._database.fetch(SQL["channel_consumers"], **scope_names(environment))
        return [
            ChannelSpec(
                id=row["channel_id"],
                name=row["name"],
                consumers=tuple(_spec(one) for one in consumers if one["channel_id"] == row["channel_id"]),
            )
            for row in channels
        ]

    async def consumers(self, channel: Channel) -> list[ChannelConsumer]:
        """The consumers that get each message published to a channel."""
        rows = await self._database.fetch(SQL["channel_consumers"], **scope_names(channel.environment))
        return [_consumer(channel, row) for row in rows if row["channel_id"] == channel.id]

    async def new_channel_token(self, environment: EnvironmentRef, channel_id: str, *, by: str) -> str:
        """A fresh token for a channel, shown this once; the old one ends at once."""
        return await self._new_token(environment, "channel", by, channel_id=channel_id)

    async def new_consumer_token(
        self, environment: EnvironmentRef, channel_id: str, consumer_id: str, *, by: str
    ) -> str:
        """A fresh token for a consumer, shown this once; the old one ends at once."""
        return await self._new_token(
            environment, "consumer", by, channel_id=channel_id, consumer_id=consumer_id
        )

    async def channel_of_token(self, token: str | None, *, channel_id: str | None = None) -> Channel:
        """The channel that a token opens. If `channel_id` is given, it must be that channel; an unknown
        channel is answered like a wrong token."""
        row = await self._by_token(SQL["channel_by_token"], token)
        if row is None or channel_id not in (None, row["channel_id"]):
            whose = "" if channel_id is None else f" for `{channel_id}`"
            raise Unauthenticated(f"the header `{CHANNEL_HEADER}` does not hold{whose}")
        return Channel(environment=scope_of(row), id=row["channel_id"], name=row["name"])

    async def consumer_of_tokens(
        self, channel_id: str, consumer_id: str, *, channel_token: str | None, consumer_token: str | None
    ) -> ChannelConsumer:
        """The consumer that both tokens open together."""
        channel = await self.channel_of_token(channel_token, channel_id=channel_id)
        row = await self._by_token(SQL["consumer_by_token"], consumer_token)
        wanted = (channel.environment, channel.id, consumer_id)
        if row is None or (scope_of(row), row["channel_id"], row["consumer_id"]) != wanted:
            raise Unauthenticated(f"the header `{CONSUMER_HEADER}` does not hold for `{consumer_id}`")
        return _consumer(channel, row)

    async def _by_token(self, query: NamedQuery, token: str | None) -> Row | None:
        parts = None if token is None else parse(token)
        if parts is None:
            return None
        row = await self._database.fetch_one(query, token_id=parts.id)
        if row is None or not hmac.compare_digest(bytes(row["token_sha256"]), parts.digest):
            return None
        return row

    async def _new_token(self, environment: EnvironmentRef, kind: str, by: str, **names: str) -> str:
        text, parts = mint(names.get("consumer_id", names["channel_id"]))
        query = SQL["set_channel_token"] if kind == "channel" else SQL["set_consumer_token"]
        scope = scope_names(environment)
        async with self._database.transaction() as connection:
            if not await execute(connection, query, token_id=parts.id, digest=parts.digest, **scope, **names):
                raise NotFound(f"there is no such {kind} here: `{'`, `'.join(names.values())}`")
            await self._record(connection, environment, by, f"{kind}.token", names["channel_id"])
        return text

    async def _check_unowned(
        self, connection: Connection, environment: EnvironmentRef, channel_id: str
    ) -> None:
        """Conflict if the spec has the channel: only it changes and removes it."""
        row = await fetch_one(
            connection, SQL["channel_owner"], channel_id=channel_id, **scope_names(environment)
        )
        if row is not None:
            raise Conflict(
                f"channel `{channel_id}` belongs to the spec `{row['name']}`; "
                "change it there and apply the spec",
                owner={"kind": "spec", **row},
            )

    async def _put(
        self, connection: Connection, environment: EnvironmentRef, channel: ChannelSpec, *, by: str
    ) -> None:
        _check(channel)
        scope = {**scope_names(environment), "channel_id": channel.id}
        await execute(connection, SQL["put_channel"], name=channel.name, now_ms=self._clock.now_ms(), **scope)
        # All are detached before any is attached, so that two consumers may swap their queues.
        tokens = {row["consumer_id"]: row for row in await fetch(connection, SQL["detach_all"], **scope)}
        for consumer in channel.consumers:
            queue = environment.queue(consumer.queue)
            await self._attach(connection, channel, consumer, queue, tokens.get(consumer.id))
        await execute(connection, SQL["rename_summaries"], **scope_names(environment))
        await self._record(connection, environment, by, "channel.put", channel.id)

    async def _remove(
        self, connection: Connection, environment: EnvironmentRef, channel_id: str, *, by: str
    ) -> bool:
        """Remove a channel; returns whether there was one."""
        scope = {**scope_names(environment), "channel_id": channel_id}
        await fetch(connection, SQL["detach_all"], **scope)
        if not await execute(connection, SQL["remove_channel"], **scope):
            return False
        await execute(connection, SQL["rename_summaries"], **scope_names(environment))
        await self._record(connection, environment, by, "channel.remove", channel_id)
        return True

    async def _attach(
        self,
        connection: Connection,
        channel: ChannelSpec,
        consumer: ConsumerSpec,
        queue: QueueRef,
        before: Row | None,
    ) -> None:
        keys = await ensure_consumers(connection, [queue], now_ms=self._clock.now_ms())
        attached = await fetch_one(
            connection,
            SQL["attach"],
            consumer_key=keys[queue],
            channel_id=channel.id,
            channel_name=channel.name,
            consumer_id=consumer.id,
            consumer_name=consumer.name,
            token_id=None if before is None else before["token_id"],
            token_sha256=None if before is None else before["token_sha256"],
        )
        if attached is None:
            raise Conflict(f"the queue `{queue.queue}` belongs to a consumer of another channel")

    async def _record(
        self, connection: Connection, environment: EnvironmentRef, actor: str, action: str, target: str
    ) -> None:
        change = AuditedChange.inside(environment, actor=actor, action=action, target=target)
        await record(connection, change, at_ms=self._clock.now_ms())


def _check(channel: ChannelSpec) -> None:
    check_name(channel.id, what="channel")
    check_name(channel.name, what="channel")
    for consumer in channel.consumers:
        check_name(consumer.id, what="consumer")
        check_name(consumer.name, what="consumer")
    _check_once([consumer.id for consumer in channel.consumers], what="consumer")
    _check_once([consumer.queue for consumer in channel.consumers], what="queue")


def _check_once(names: Sequence[str], *, what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInput(f"the {what} `{name}` appears twice in the channel; each consumer has its own")
        seen.add(name)


def _spec(row: Row) -> ConsumerSpec:
    return ConsumerSpec(id=row["consumer_id"], name=row["consumer_name"], queue=row["queue"])


def _consumer(channel: Channel, row: Row) -> ChannelConsumer:
    return ChannelConsumer(
        channel=channel,
        id=row["consumer_id"],
        name=row["consumer_name"],
        queue=channel.environment.queue(row["queue"]),
    )
