"""Writes one evaluation: memories, alerts, timelines and notifications in one fenced transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from psycopg.types.json import Jsonb

from weir.alerts.alert import SQL as RECORDS
from weir.alerts.alert import Alert, alert_of
from weir.alerts.evaluation import AlertChange, Key, StoredMemory
from weir.alerts.judge import finite
from weir.alerts.lease import Term, fence, note_evaluation
from weir.alerts.machine import AlertStatus, Memory, Transition
from weir.alerts.notifications import NotificationKind, notify
from weir.alerts.rule import AlertRule
from weir.alerts.silences import Silence, is_silenced, silence_of
from weir.alerts.verdict import Verdict
from weir.control.database import Connection, Database, execute, execute_many, fetch
from weir.control.scopes import scope_names
from weir.control.sql import load_queries
from weir.model.ids import new_id

SQL = load_queries("weir.alerts", "evaluation_writer.sql")
_LINES = {
    Transition.FIRED: "fired",
    Transition.RESOLVED: "resolved",
    Transition.WENT_UNKNOWN: "unknown",
    Transition.KNOWN_AGAIN: "known",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOutcome:
    """The counts of one evaluation."""

    rules: int
    changes: int
    fired: int = 0
    resolved: int = 0
    unknown: int = 0


async def load_memories(database: Database) -> dict[Key, StoredMemory]:
    return {
        (str(row["rule_id"]), row["queue"]): StoredMemory(
            memory=Memory(
                status=AlertStatus(row["status"]),
                since_ms=row["since_ms"],
                open=row["open"],
                clear_since_ms=row["clear_since_ms"],
                last_fired_ms=row["last_fired_ms"],
                evaluated_ms=row["evaluated_ms"],
            ),
            alert_id=None if row["alert_id"] is None else str(row["alert_id"]),
        )
        for row in await database.fetch(SQL["memories"])
    }


class EvaluationWriter:
    """Writes the changes of an evaluation. Nothing is written if the term has ended."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(
        self,
        changes: Sequence[AlertChange],
        verdicts: Mapping[Key, Verdict],
        *,
        term: Term,
        now_ms: int,
        took_ms: int,
    ) -> None:
        async with self._database.transaction() as connection:
            # First: it locks the lease, so that no other process writes an evaluation until this one commits.
            await fence(connection, term)
            transaction = _EvaluationTransaction(connection, verdicts, now_ms=now_ms)
            await transaction.read()
            await transaction.apply(await _lock_unchanged(connection, changes))
            await note_evaluation(connection, term, now_ms=now_ms, took_ms=took_ms)


async def _lock_unchanged(connection: Connection, changes: Sequence[AlertChange]) -> list[AlertChange]:
    """Lock the rules, and leave out changes of rules that were edited since they were read."""
    rules = {change.rule.id: change.rule for change in changes}
    rows = await fetch(
        connection,
        SQL["lock_rules"],
        ids=list(rules),
        updated=[rule.updated_at_ms for rule in rules.values()],
    )
    valid = {str(row["id"]) for row in rows}
    return [change for change in changes if change.rule.id in valid]


class _EvaluationTransaction:
    """The writes of one evaluation inside one transaction."""

    def __init__(self, connection: Connection, verdicts: Mapping[Key, Verdict], *, now_ms: int) -> None:
        self._connection = connection
        self._verdicts = verdicts
        self._now_ms = now_ms
        self._silences: list[Silence] = []
        self._open: dict[str, Alert] = {}

    async def read(self) -> None:
        rows = await fetch(self._connection, SQL["silences_at"], now_ms=self._now_ms)
        self._silences = [silence_of(row) for row in rows]
        alerts = [alert_of(row) for row in await fetch(self._connection, SQL["open_alerts"])]
        self._open = {alert.id: alert for alert in alerts}

    async def apply(self, changes: Sequence[AlertChange]) -> None:
        changes = [change for change in changes if not self._closed_meanwhile(change)]
        raised = {
            change.key: self._raised(change) for change in changes if Transition.FIRED in change.transitions
        }
        await execute_many(self._connection, SQL["raise_alert"], [_alert_row(one) for one in raised.values()])
        over, still = self._sorted(changes)
        await execute(
            self._connection, RECORDS["resolve_alerts"], ids=[a.id for a in over], now_ms=self._now_ms
        )
        firing = [*raised.values(), *still]
        told = await self._tell(NotificationKind.FIRING, [alert for alert in firing if not alert.notified])
        # Also under a silence: a channel that was told of an alert is told that it is over.
        await self._tell(
            NotificationKind.RESOLVED, [alert for alert in over if alert.notified], silenced_too=True
        )
        await self._update([replace(one, notified=one.notified or one.id in told) for one in firing])
        await self._write_timelines(changes, raised)
        await self._write_memories(changes, {key: alert.id for key, alert in raised.items()})

    def _sorted(self, changes: Sequence[AlertChange]) -> tuple[list[Alert], list[Alert]]:
        """The alerts that were open before, as two lists: resolved now, and still open."""
        over, still = [], []
        for change in changes:
            alert = self._alert_of(change)
            if alert is None:
                continue
            if Transition.RESOLVED in change.transitions:
                over.append(replace(alert, state="resolved", resolved_at_ms=self._now_ms))
            else:
                still.append(self._moved(change, alert))
        return over, still

    def _closed_meanwhile(self, change: AlertChange) -> bool:
        """Whether somebody resolved the alert by hand during this evaluation."""
        before = change.before
        return before is not None and before.memory.open and before.alert_id not in self._open

    def _alert_of(self, change: AlertChange) -> Alert | None:
        alert_id = change.before.alert_id if change.before else None
        return None if alert_id is None else self._open.get(alert_id)

    def _raised(self, change: AlertChange) -> Alert:
        verdict = self._verdicts[change.key]
        return Alert(
            id=new_id(),
            rule_id=change.rule.id,
            environment=change.rule.environment,
            rule=rule_document(change.rule),
            queue=change.queue.queue if change.queue else "",
            state="firing",
            fired_at_ms=self._now_ms,
            resolved_at_ms=None,
            unknown_since_ms=None,
            value=finite(change.observation.value),
            peak=finite(change.observation.value),
            cause=verdict.cause.value,
            verdict=verdict.document(),
            notified=False,
            acknowledged_at_ms=None,
            acknowledged_by=None,
        )

    def _moved(self, change: AlertChange, alert: Alert) -> Alert:
        """The open alert with its newest value. While the value is unknown, the last one stays."""
        if change.memory.status is AlertStatus.UNKNOWN:
            return replace(alert, unknown_since_ms=alert.unknown_since_ms or self._now_ms)
        value = finite(change.observation.value)
        return replace(alert, value=value, peak=_worse(change.rule, alert.peak, value), unknown_since_ms=None)

    async def _tell(
        self, kind: NotificationKind, alerts: Iterable[Alert], *, silenced_too: bool = False
    ) -> set[str]:
        """Notify per rule, the worst alert first; return the ids of the notified alerts."""
        by_rule: dict[str, list[Alert]] = defaultdict(list)
        for alert in alerts:
            if silenced_too or not is_silenced(alert, self._silences):
                by_rule[alert.rule_id].append(alert)
        for group in by_rule.values():
            rising = group[0].rule["operator"].startswith(">")
            group.sort(key=lambda alert: _badness(alert.value, rising=rising), reverse=True)
            await notify(self._connection, kind, group, now_ms=self._now_ms)
        return {alert.id for group in by_rule.values() for alert in group}

    async def _update(self, alerts: Sequence[Alert]) -> None:
        columns = ("id", "value", "peak", "unknown_since_ms", "notified")
        lists = {name: [getattr(alert, name) for alert in alerts] for name in columns}
        await execute(self._connection, SQL["update_alerts"], **lists)

    async def _write_timelines(self, changes: Sequence[AlertChange], raised: Mapping[Key, Alert]) -> None:
        lines = []
        for change in changes:
            alert = raised.get(change.key) or self._alert_of(change)
            if alert is not None:
                details = {"value": finite(change.observation.value)}
                lines += [
                    _line(alert, self._now_ms, _LINES[h], details) for h in change.transitions if h in _LINES
                ]
        if lines:
            await execute_many(self._connection, RECORDS["add_timeline"], lines)

    async def _write_memories(self, changes: Sequence[AlertChange], raised: Mapping[Key, str]) -> None:
        gone = [change.key for change in changes if change.forget and change.before is not None]
        await execute(
            self._connection,
            SQL["drop_memories"],
            rule_id=[rule_id for rule_id, _ in gone],
            queue=[queue for _, queue in gone],
        )
        rows = [_memory_row(change, raised) for change in changes if change.worth_keeping]
        if rows:
            lists = {name: [row[name] for row in rows] for name in rows[0]}
            await execute(self._connection, SQL["put_memories"], **lists)


def rule_document(rule: AlertRule) -> dict[str, Any]:
    """The rule as an alert stores it."""
    draft = asdict(rule.draft)
    return {**draft, "channels": list(rule.draft.channels), "id": rule.id}


def _alert_row(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.id,
        "rule_id": alert.rule_id,
        "rule": Jsonb(dict(alert.rule)),
        "queue": alert.queue,
        "fired_at_ms": alert.fired_at_ms,
        "value": alert.value,
        "cause": alert.cause,
        "verdict": Jsonb(dict(alert.verdict)),
        **scope_names(alert.environment),
    }


def _worse(rule: AlertRule, left: float | None, right: float | None) -> float | None:
    values = [value for value in (left, right) if value is not None]
    if not values:
        return None
    return max(values) if rule.draft.operator.rising else min(values)


def _badness(value: float | None, *, rising: bool) -> float:
    """A number to sort alerts by. None means infinite, and sorts as the worst."""
    if value is None:
        return float("inf")
    return value if rising else -value


def _line(alert: Alert, at_ms: int, event: str, details: Mapping[str, Any]) -> dict[str, Any]:
    return {"alert_id": alert.id, "at_ms": at_ms, "event": event, "details": Jsonb(dict(details))}


def _memory_row(change: AlertChange, raised: Mapping[Key, str]) -> dict[str, Any]:
    memory = change.memory
    known = change.before.alert_id if change.before else None
    rule_id, queue = change.key
    return {
        "rule_id": rule_id,
        "queue": queue,
        "status": memory.status.value,
        "since_ms": memory.since_ms,
        "open": memory.open,
        "clear_since_ms": memory.clear_since_ms,
        "last_fired_ms": memory.last_fired_ms,
        "evaluated_ms": memory.evaluated_ms,
        "alert_id": raised.get(change.key, known) if memory.open else None,
    }
