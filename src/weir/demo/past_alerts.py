"""Writes the alerts and annotations of the demo's past, so that charts and lists tell what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from weir.alerts.verdict import Cause, Verdict
from weir.control.annotations import Annotations
from weir.control.database import Database
from weir.control.scopes import scope_names
from weir.control.sql import load_queries
from weir.demo.past_incidents import (
    FIRES_AFTER_MS,
    QUEUES,
    RESOLVES_AFTER_MS,
    IncidentKind,
    PastIncident,
    past_deploys,
    past_incidents,
)
from weir.demo.scenario import SHOP
from weir.model.durations import MINUTE_MS
from weir.model.ids import new_id

SQL = load_queries("weir.demo", "past_alerts.sql")
_ACTOR = "demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """The rule of a past alert, the value that it saw, and the verdict."""

    rule: str
    metric: str
    threshold: float
    value: float
    cause: Cause
    summary: str
    evidence: Mapping[str, Any]


_TOLD = {
    IncidentKind.BANK_SLOW: _Told(
        rule="Payments back up",
        metric="backlog",
        threshold=40,
        value=260,
        cause=Cause.SLOW_HANDLERS,
        summary="handlers take 3 s, usually 0.1 s",
        evidence={"depth": 260, "oldest_age_ms": 94_000, "handler_ms": 3_000, "usual_handler_ms": 120},
    ),
    IncidentKind.BAD_DEPLOY: _Told(
        rule="Waits are long",
        metric="latency_p95",
        threshold=30_000,
        value=61_000,
        cause=Cause.SLOW_HANDLERS,
        summary="handlers take 3.2 s, usually 40 ms",
        evidence={"depth": 410, "oldest_age_ms": 61_000, "handler_ms": 3_200, "usual_handler_ms": 40},
    ),
    IncidentKind.POISONED_IMPORT: _Told(
        rule="Imports die",
        metric="dead_letters",
        threshold=100,
        value=480,
        cause=Cause.POISON_MESSAGES,
        summary="50 % of the attempts fail while 960 messages went through; 480 died",
        evidence={
            "depth": 12,
            "error_rate": 0.5,
            "errors": [{"error": "ValueError: column `price` is not a number: 'N/A'", "count": 480}],
        },
    ),
    IncidentKind.PHOTO_CAMPAIGN: _Told(
        rule="Waits are long",
        metric="latency_p95",
        threshold=30_000,
        value=88_000,
        cause=Cause.ARRIVAL_SPIKE,
        summary="10.2 messages/s arrive, 4.1 times the usual 2.5/s",
        evidence={"depth": 640, "oldest_age_ms": 88_000, "arriving_per_s": 10.2, "usual_per_s": 2.5},
    ),
    IncidentKind.MAIL_WORKERS_DOWN: _Told(
        rule="Waits are long",
        metric="latency_p95",
        threshold=30_000,
        value=130_000,
        cause=Cause.NO_WORKERS,
        summary="no worker is alive for this queue; 760 messages wait",
        evidence={"depth": 760, "oldest_age_ms": 130_000, "workers": 0, "slots": 0, "free_slots": 0},
    ),
}


async def write_past_alerts(database: Database, *, first_ms: int) -> None:
    """Write the alerts and annotations of the past, unless the shop has alerts already."""
    scope = scope_names(SHOP.environment)
    if (await database.fetch(SQL["has_alerts"], **scope))[0]["found"]:
        return
    for incident in past_incidents(first_ms):
        await database.execute(SQL["add_past_alert"], **_alert(incident), **scope)
    annotations = Annotations(database)
    for deploy in past_deploys(first_ms):
        await annotations.add(SHOP.environment, text=deploy.text, at_ms=deploy.at_ms, actor=_ACTOR)


def _alert(incident: PastIncident) -> dict[str, Any]:
    told = _TOLD[incident.kind]
    verdict = Verdict(cause=told.cause, summary=told.summary, evidence=told.evidence)
    rule = {
        "id": new_id(),
        "name": told.rule,
        "metric": told.metric,
        "operator": ">",
        "threshold": told.threshold,
        "window_ms": MINUTE_MS,
        "channels": [],
    }
    return {
        "id": new_id(),
        "rule_id": rule["id"],
        "rule": Jsonb(rule),
        "queue": QUEUES[incident.kind],
        "fired_at_ms": incident.start_ms + FIRES_AFTER_MS,
        "resolved_at_ms": incident.end_ms + RESOLVES_AFTER_MS,
        "value": told.value,
        "cause": told.cause.value,
        "verdict": Jsonb(verdict.document()),
    }
