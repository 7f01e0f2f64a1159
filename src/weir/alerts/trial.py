"""A test notification: it travels the whole way that a real one would."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from weir.alerts.channel import AlertChannel
from weir.alerts.notices import NoticeKind
from weir.alerts.words import SQL
from weir.control.database import Database
from weir.control.scopes import scope_names
from weir.model.ids import new_id


async def fire_test(database: Database, channel: AlertChannel, *, kind: NoticeKind, now_ms: int) -> str:
    """Put a test notification into the outbox; its id."""
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
            "window_ms": 300_000,
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
