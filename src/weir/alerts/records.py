"""Alerts that were raised: what, when, why, who knows, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from psycopg.types.json import Jsonb

from weir.alerts.closing import resolve_alert
from weir.alerts.words import SQL, AlertRow, alert_row
from weir.control.database import Database, execute, fetch_one
from weir.control.scopes import scope_names
from weir.errors import Conflict, NotFound
from weir.model.clock import Clock, SystemClock
from weir.model.ids import check_id
from weir.model.names import EnvironmentRef


class State(StrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    at_ms: int
    event: str
    details: Mapping[str, Any]


class Records:
    """The alerts of an environment."""

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def of(
        self,
        environment: EnvironmentRef,
        *,
        state: State | None = None,
        queue: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[AlertRow]:
        """Newest first; `before` is the id of the last one already seen."""
        rows = await self._database.fetch(
            SQL["list_alerts"],
            state=None if state is None else state.value,
            queue=queue,
            before=None if before is None else check_id(before, what="alert"),
            limit=limit,
            **scope_names(environment),
        )
        return [alert_row(row) for row in rows]

    async def find(self, environment: EnvironmentRef, alert_id: str) -> AlertRow:
        alert_id = check_id(alert_id, what="alert")
        row = await self._database.fetch_one(SQL["find_alert"], id=alert_id, **scope_names(environment))
        if row is None:
            raise NotFound(f"there is no alert `{alert_id}` in this environment")
        return alert_row(row)

    async def timeline(self, alert: AlertRow) -> list[TimelineEntry]:
        rows = await self._database.fetch(SQL["timeline"], id=alert.id)
        return [TimelineEntry(**row) for row in rows]

    async def acknowledge(self, environment: EnvironmentRef, alert_id: str, *, actor: str) -> AlertRow:
        """Say that somebody looks at it; a second time changes nothing."""
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

    async def resolve(self, environment: EnvironmentRef, alert_id: str, *, actor: str) -> AlertRow:
        """End an alert by hand. If its condition still holds, it fires again after the cooldown."""
        alert = await self.find(environment, alert_id)
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, SQL["lock_alert"], id=alert.id)
            if row is None:
                raise Conflict(f"the alert `{alert.id}` is resolved already")
            await resolve_alert(
                connection, alert_row(row), now_ms=self._clock.now_ms(), reason=f"resolved by {actor}"
            )
        return await self.find(environment, alert_id)
