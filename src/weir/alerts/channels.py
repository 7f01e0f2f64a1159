"""Channels in PostgreSQL."""

from __future__ import annotations

from psycopg.types.json import Jsonb

from weir.alerts.channel import AlertChannel, ChannelKind
from weir.control.database import Database, Row
from weir.control.scopes import scope_names, scope_of
from weir.control.sql import load_queries
from weir.errors import NotFound
from weir.model.clock import Clock, SystemClock
from weir.model.names import EnvironmentRef

SQL = load_queries("weir.alerts", "channels.sql")


class AlertChannels:
    """The register of channels, each within its environment."""

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def put(self, channel: AlertChannel) -> None:
        await self._database.execute(
            SQL["put_channel"],
            name=channel.name,
            kind=channel.kind.value,
            config=Jsonb(dict(channel.config)),
            now_ms=self._clock.now_ms(),
            **scope_names(channel.environment),
        )

    async def find(self, environment: EnvironmentRef, name: str) -> AlertChannel:
        row = await self._database.fetch_one(SQL["find_channel"], name=name, **scope_names(environment))
        if row is None:
            raise NotFound(f"there is no alert channel `{name:.64}` in this environment")
        return _channel(row)

    async def of(self, environment: EnvironmentRef) -> list[AlertChannel]:
        rows = await self._database.fetch(SQL["list_channels"], **scope_names(environment))
        return [_channel(row) for row in rows]

    async def delete(self, environment: EnvironmentRef, name: str) -> None:
        if not await self._database.execute(SQL["delete_channel"], name=name, **scope_names(environment)):
            raise NotFound(f"there is no alert channel `{name:.64}` in this environment")

    async def disable(self, environment: EnvironmentRef, name: str, *, reason: str) -> None:
        """Tell nothing more through this channel until somebody changes it."""
        await self._database.execute(
            SQL["disable_channel"], name=name, reason=reason, **scope_names(environment)
        )


def _channel(row: Row) -> AlertChannel:
    return AlertChannel(
        environment=scope_of(row),
        name=row["name"],
        kind=ChannelKind(row["kind"]),
        config=row["config"],
        disabled_reason=row["disabled_reason"],
    )
