"""A stored alert, with its rule as it was when the alert fired."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weir.control.database import Row
from weir.control.scopes import scope_of
from weir.control.sql import load_queries
from weir.model.names import EnvironmentRef

SQL = load_queries("weir.alerts", "alert_records.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One time that a rule fired for one queue."""

    id: str
    rule_id: str
    environment: EnvironmentRef
    rule: Mapping[str, Any]
    """The rule as it was then: name, metric, operator, threshold, window_ms, channels."""
    queue: str
    """Empty for a rule that is not about a queue."""
    state: str
    fired_at_ms: int
    resolved_at_ms: int | None
    unknown_since_ms: int | None
    value: float | None
    peak: float | None
    cause: str
    verdict: Mapping[str, Any]
    notified: bool
    acknowledged_at_ms: int | None
    acknowledged_by: str | None
    fired_value: float | None = None
    """The value that it fired at, which its verdict explains; None where the query does not read it."""


def alert_of(row: Row) -> Alert:
    environment = scope_of(row)
    names = {name: row[name] for name in Alert.__dataclass_fields__ if name in row}
    return Alert(
        **{**names, "id": str(row["id"]), "rule_id": str(row["rule_id"]), "environment": environment}
    )
