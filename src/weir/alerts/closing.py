"""Ending alerts outside the evaluator: by hand, or because their rule went away."""

from __future__ import annotations

from dataclasses import replace

from psycopg.types.json import Jsonb

from weir.alerts.notices import NoticeKind, notify
from weir.alerts.words import SQL, AlertRow, alert_row
from weir.control.database import Connection, execute, fetch


async def close_alerts(connection: Connection, rule_id: str, *, now_ms: int, reason: str) -> None:
    """Resolve every open alert of a rule and tell its channels."""
    for row in await fetch(connection, SQL["open_alerts_of_rule"], rule_id=rule_id):
        await resolve_alert(connection, alert_row(row), now_ms=now_ms, reason=reason)


async def resolve_alert(connection: Connection, alert: AlertRow, *, now_ms: int, reason: str) -> None:
    """Resolve one open alert that the caller has locked, and tell its channels if they knew of it."""
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
        await notify(connection, NoticeKind.RESOLVED, [over], now_ms=now_ms)
