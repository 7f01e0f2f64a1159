"""Notifications: one per rule, channel and evaluation, stored in the transaction of the change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from psycopg.types.json import Jsonb

from weir.alerts.alert import SQL, Alert
from weir.alerts.alert_channels import AlertChannel
from weir.control.database import Connection, Database, execute
from weir.control.scopes import scope_names
from weir.model.ids import new_id
from weir.spec.ir import DEFAULT_ALERT_WINDOW_MS

# A notification lists this many alerts; of the others it only tells how many there are.
MAX_ALERTS = 50


class NotificationKind(StrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"
    TEST = "test"


async def notify(
    connection: Connection, kind: NotificationKind, alerts: Sequence[Alert], *, now_ms: int
) -> None:
    """Store one notification per channel for the relay. `alerts` belong to one rule, the worst first."""
    rule = alerts[0].rule
    document = document_of(alerts)
    for channel in rule["channels"]:
        await execute(
            connection,
            SQL["add_notification"],
            id=new_id(),
            channel=channel,
            kind=kind.value,
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
    """Store a test notification, which is sent the same way as a real one; return its id."""
    notification_id = new_id()
    await database.execute(
        SQL["add_notification"],
        id=notification_id,
        channel=channel.name,
        kind=kind.value,
        document=Jsonb(_document(channel, now_ms=now_ms)),
        now_ms=now_ms,
        **scope_names(channel.environment),
    )
    return notification_id


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
