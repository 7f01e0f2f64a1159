"""Notifications: one per rule, channel and evaluation, stored in the transaction of the change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from psycopg.types.json import Jsonb

from weir.alerts.alert import SQL, Alert
from weir.alerts.alert_channels import AlertChannel
from weir.control.database import Connection, Database, execute, fetch_one
from weir.control.scopes import scope_names
from weir.errors import Overloaded
from weir.model.durations import MINUTE_MS, SECOND_MS
from weir.model.ids import new_id
from weir.model.names import EnvironmentRef
from weir.model.wording import duration
from weir.spec.ir import DEFAULT_ALERT_WINDOW_MS

# A notification lists this many alerts; of the others it only tells how many there are.
MAX_ALERTS = 50


MAX_TESTS = 10
"""Test notifications that an environment may send per minute."""


class NotificationKind(StrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"
    TEST = "test"


async def notify(
    connection: Connection, kind: NotificationKind, alerts: Sequence[Alert], *, now_ms: int
) -> None:
    """Store one notification per channel. `alerts` belong to one rule, the worst first."""
    rule = alerts[0].rule
    document = document_of(alerts)
    for channel in rule["channels"]:
        await execute(
            connection,
            SQL["add_notification"],
            id=new_id(),
            channel=channel,
            kind=kind.value,
            subject=alerts[0].rule_id,
            alert_ids=[alert.id for alert in alerts],
            document=Jsonb(document),
            now_ms=now_ms,
            **scope_names(alerts[0].environment),
        )


def document_of(alerts: Sequence[Alert]) -> dict[str, Any]:
    """The data for the templates: the rule, its alerts, and how many more there are."""
    first = alerts[0]
    return {
        "organization": first.environment.organization,
        "project": first.environment.project,
        "environment": first.environment.environment,
        "rule": dict(first.rule),
        "alerts": [_alert(alert) for alert in alerts[:MAX_ALERTS]],
        "more": max(len(alerts) - MAX_ALERTS, 0),
    }


def _alert(alert: Alert) -> Mapping[str, Any]:
    return {
        "id": alert.id,
        "queue": alert.queue,
        "state": alert.state,
        "value": alert.value,
        "fired_at_ms": alert.fired_at_ms,
        "resolved_at_ms": alert.resolved_at_ms,
        "cause": alert.cause,
        "verdict": dict(alert.verdict),
    }


async def fire_test(database: Database, channel: AlertChannel, *, kind: NotificationKind, now_ms: int) -> str:
    """Store a test notification, which is sent the same way as a real one; return its id.

    Overloaded if the environment has sent `MAX_TESTS` within a minute.
    """
    notification_id = new_id()
    async with database.transaction() as connection:
        await _refuse_many(connection, channel.environment, now_ms=now_ms)
        await execute(
            connection,
            SQL["add_notification"],
            id=notification_id,
            channel=channel.name,
            kind=kind.value,
            subject=notification_id,
            alert_ids=[],
            document=Jsonb(_document(channel, now_ms=now_ms)),
            now_ms=now_ms,
            **scope_names(channel.environment),
        )
    return notification_id


async def _refuse_many(connection: Connection, environment: EnvironmentRef, *, now_ms: int) -> None:
    """Refuse a test if the environment has sent many. Tests are counted one after the other."""
    await execute(connection, SQL["hold_tests"], environment="/".join(scope_names(environment).values()))
    row = await fetch_one(
        connection, SQL["recent_tests"], since_ms=now_ms - MINUTE_MS, **scope_names(environment)
    )
    if row is not None and row["tests"] >= MAX_TESTS:
        left_ms = row["first_ms"] + MINUTE_MS - now_ms
        raise Overloaded(
            f"this environment has sent {MAX_TESTS} test notifications within a minute; "
            f"try again in {duration(left_ms)}",
            retry_after_s=left_ms / SECOND_MS,
        )


def _document(channel: AlertChannel, *, now_ms: int) -> dict[str, Any]:
    text = "this is a test; nothing is wrong"
    return {
        **scope_names(channel.environment),
        "rule": {
            "id": new_id(),
            "name": "test",
            "metric": "backlog",
            "operator": ">",
            "threshold": 0,
            "window_ms": DEFAULT_ALERT_WINDOW_MS,
        },
        "alerts": [
            {
                "id": new_id(),
                "queue": "test",
                "state": "firing",
                "value": 1,
                "fired_at_ms": now_ms,
                "resolved_at_ms": None,
                "cause": "unknown",
                "verdict": {"cause": "unknown", "summary": text, "evidence": {}, "also": []},
            }
        ],
        "more": 0,
    }
