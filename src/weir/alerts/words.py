"""An alert as it is stored, and its rule at the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weir.control.database import Row
from weir.control.scopes import scope_of
from weir.control.sql import load_queries
from weir.model.names import EnvironmentRef

SQL = load_queries("weir.alerts", "records.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """One time that a rule fired."""

    id: str
    rule_id: str
    environment: EnvironmentRef
    rule: Mapping[str, Any]
    """The rule as it was then: name, metric, operator, threshold, window_ms, channels."""
    queue: str
    """Empty for rules about no queue."""
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
    """The value that it fired at, of which its verdict speaks; None where it was not asked for."""


def alert_row(row: Row) -> AlertRow:
    environment = scope_of(row)
    names = {name: row[name] for name in AlertRow.__dataclass_fields__ if name in row}
    return AlertRow(
        **{**names, "id": str(row["id"]), "rule_id": str(row["rule_id"]), "environment": environment}
    )
