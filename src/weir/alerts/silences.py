"""Silences: alerts are raised and recorded as usual, but their notifications wait until the silence ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weir.alerts.alert import Alert
from weir.control.database import Database, Row
from weir.control.scopes import scope_names, scope_of
from weir.control.sql import load_queries
from weir.errors import InvalidInput, NotFound
from weir.model.clock import Clock, SystemClock
from weir.model.durations import DAY_MS
from weir.model.ids import check_id, new_id
from weir.model.names import EnvironmentRef, check_name
from weir.model.wording import duration

SQL = load_queries("weir.alerts", "silences.sql")
MAX_MS = 90 * DAY_MS
MAX_COMMENT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    id: str
    environment: EnvironmentRef
    rule_name: str | None
    """None: every rule."""
    queue: str | None
    """None: every queue."""
    starts_at_ms: int
    ends_at_ms: int
    comment: str
    created_by: str

    def covers(self, alert: Alert) -> bool:
        return (
            self.environment == alert.environment
            and self.rule_name in (None, alert.rule["name"])
            and self.queue in (None, alert.queue)
        )


class Silences:
    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def add(
        self,
        environment: EnvironmentRef,
        *,
        for_ms: int,
        rule_name: str | None = None,
        queue: str | None = None,
        comment: str = "",
        actor: str,
    ) -> Silence:
        """Silence a rule, a queue or all alerts of the environment for `for_ms` from now."""
        if not 0 < for_ms <= MAX_MS:
            raise InvalidInput(f"the silence lasts `{for_ms}` ms; expected 1 ms to {duration(MAX_MS)}")
        if len(comment) > MAX_COMMENT or "\x00" in comment:
            raise InvalidInput(f"a comment has at most {MAX_COMMENT} characters and no NUL")
        now_ms = self._clock.now_ms()
        silence = Silence(
            id=new_id(),
            environment=environment,
            rule_name=None if rule_name is None else check_name(rule_name, what="alert rule"),
            queue=None if queue is None else check_name(queue, what="queue"),
            starts_at_ms=now_ms,
            ends_at_ms=now_ms + for_ms,
            comment=comment,
            created_by=actor,
        )
        await self._database.execute(
            SQL["add_silence"],
            id=silence.id,
            rule_name=silence.rule_name,
            queue=silence.queue,
            starts_at_ms=silence.starts_at_ms,
            ends_at_ms=silence.ends_at_ms,
            comment=comment,
            created_by=actor,
            **scope_names(environment),
        )
        return silence

    async def of(self, environment: EnvironmentRef) -> list[Silence]:
        rows = await self._database.fetch(
            SQL["list_silences"], now_ms=self._clock.now_ms(), **scope_names(environment)
        )
        return [silence_of(row) for row in rows]

    async def end(self, environment: EnvironmentRef, silence_id: str) -> None:
        silence_id = check_id(silence_id, what="silence")
        if not await self._database.execute(SQL["end_silence"], id=silence_id, **scope_names(environment)):
            raise NotFound(f"there is no silence `{silence_id}` in this environment")


def silence_of(row: Row) -> Silence:
    return Silence(
        id=str(row["id"]),
        environment=scope_of(row),
        rule_name=row["rule_name"],
        queue=row["queue"],
        starts_at_ms=row["starts_at_ms"],
        ends_at_ms=row["ends_at_ms"],
        comment=row["comment"],
        created_by=row["created_by"],
    )


def is_silenced(alert: Alert, silences: Iterable[Silence]) -> bool:
    return any(silence.covers(alert) for silence in silences)
