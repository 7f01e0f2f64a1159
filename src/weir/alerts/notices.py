"""What is said: one notification a rule, channel and evaluation, written with the change that caused it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from psycopg.types.json import Jsonb

from weir.alerts.words import SQL, AlertRow
from weir.control.database import Connection, execute
from weir.control.scopes import scope_names
from weir.model.ids import new_id

MAX_ALERTS = 50
"""A notification tells of so many alerts in full; of the others it tells how many."""


class NoticeKind(StrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"
    TEST = "test"


async def notify(
    connection: Connection, kind: NoticeKind, alerts: Sequence[AlertRow], *, now_ms: int
) -> None:
    """Put one notification a channel into the outbox; `alerts` are of one rule, the worst first."""
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


def document_of(alerts: Sequence[AlertRow]) -> dict[str, Any]:
    """What templates are filled with: the rule, its alerts, and how many more there are."""
    first = alerts[0]
    return {
        "organization": first.environment.organization,
        "project": first.environment.project,
        "environment": first.environment.environment,
        "rule": dict(first.rule),
        "alerts": [_alert(alert) for alert in alerts[:MAX_ALERTS]],
        "more": max(len(alerts) - MAX_ALERTS, 0),
    }


def _alert(alert: AlertRow) -> Mapping[str, Any]:
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
