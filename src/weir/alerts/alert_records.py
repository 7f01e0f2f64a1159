"""The alerts of an environment: listing, acknowledging and resolving them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from psycopg.types.json import Jsonb

from weir.alerts.alert import SQL, Alert, alert_of
from weir.alerts.notifications import NotificationKind, notify
from weir.control.database import Connection, Database, execute, fetch, fetch_one
from weir.control.scopes import scope_names
from weir.errors import Conflict, NotFound
from weir.model.clock import Clock, SystemClock
from weir.model.ids import check_id
from weir.model.names import EnvironmentRef


class AlertState(StrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    at_ms: int
    event: str
    details: Mapping[str, Any]


class AlertRecords:
    """The alerts of an environment."""

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def of(
        self,
        environment: EnvironmentRef,
        *,
        state: AlertState | None = None,
        queue: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[Alert]:
        """The alerts, newest first. `before` is the id of the last one of the previous page."""
        rows = await self._database.fetch(
            SQL["list_alerts"],
            state=None if state is None else state.value,
            queue=queue,
            before=None if before is None else check_id(before, what="alert"),
            limit=limit,
            **scope_names(environment),
        )
        return [alert_of(row) for row in rows]

    async def find(self, environment: EnvironmentRef, alert_id: str) -> Alert:
        alert_id = check_id(alert_id, what="alert")
        row = await self._database.fetch_one(SQL["find_alert"], id=alert_id, **scope_names(environment))
        if row is None:
            raise NotFound(f"there is no alert `{alert_id}` in this environment")
        return alert_of(row)

    async def timeline(self, alert: Alert) -> list[TimelineEntry]:
        rows = await self._database.fetch(SQL["timeline"], id=alert.id)
        return [TimelineEntry(**row) for row in rows]

    async def acknowledge(self, environment: EnvironmentRef, alert_id: str, *, actor: str) -> Alert:
        """Note that somebody works on the alert. A second time changes nothing."""
        alert = await self.find(environment, alert_id)
        now_ms = self._clock.now_ms()
        async with self._database.transaction() as connection:
            if await execute(connection, SQL["acknowledge"], id=alert.id, now_ms=now_ms, actor=actor):
                await execute(
                    connection,
                    SQL["add_timeline"],
                    alert_id=alert.id,
                    at_ms=now_ms,
                    event="acknowledged",
                    details=Jsonb({"by": actor}),
                )
        return await self.find(environment, alert_id)

    async def resolve(self, environment: EnvironmentRef, alert_id: str, *, actor: str) -> Alert:
        """Resolve an alert by hand. If its condition still holds, it fires again after the cooldown."""
        alert = await self.find(environment, alert_id)
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, SQL["lock_alert"], id=alert.id)
            if row is None:
                raise Conflict(f"the alert `{alert.id}` is resolved already")
            await resolve_alert(
                connection, alert_of(row), now_ms=self._clock.now_ms(), reason=f"resolved by {actor}"
            )
        return await self.find(environment, alert_id)


async def close_alerts(connection: Connection, rule_id: str, *, now_ms: int, reason: str) -> None:
    """Resolve every open alert of a rule and notify its channels."""
    for row in await fetch(connection, SQL["open_alerts_of_rule"], rule_id=rule_id):
        await resolve_alert(connection, alert_of(row), now_ms=now_ms, reason=reason)


async def resolve_alert(connection: Connection, alert: Alert, *, now_ms: int, reason: str) -> None:
    """Resolve one open alert that the caller has locked, and notify the channels that got the alert."""
    await execute(connection, SQL["resolve_alerts"], ids=[alert.id], now_ms=now_ms)
    await execute(connection, SQL["close_memories"], ids=[alert.id], now_ms=now_ms)
    await execute(
        connection,
        SQL["add_timeline"],
        alert_id=alert.id,
        at_ms=now_ms,
        event="resolved",
        details=Jsonb({"reason": reason}),
    )
    if alert.notified:
        over = replace(alert, state="resolved", resolved_at_ms=now_ms)
        await notify(connection, NotificationKind.RESOLVED, [over], now_ms=now_ms)
