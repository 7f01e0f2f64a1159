"""Figures of the operation queue for rules. They come from PostgreSQL, so they do not need telemetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weir.alerts.alert_metrics import CATALOGUE, About, Metric
from weir.alerts.rule import AlertRule
from weir.control.database import Database
from weir.control.sql import load_queries
from weir.model.names import EnvironmentRef

SQL = load_queries("weir.alerts", "operation_figures.sql")
Watched = tuple[EnvironmentRef, int]
"""An environment and a window in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFigures:
    """The operations of one environment: how many wait now, and how many failed in a window."""

    waiting: int
    oldest_age_ms: int
    failed: int

    def figure(self, metric: Metric) -> float:
        values = {
            Metric.OPERATION_AGE: self.oldest_age_ms,
            Metric.OPERATION_BACKLOG: self.waiting,
            Metric.FAILED_OPERATIONS: self.failed,
        }
        return float(values[metric])


async def operation_figures(
    database: Database, rules: Sequence[AlertRule]
) -> Mapping[Watched, OperationFigures]:
    """Read the figures of all rules about operations in one query."""
    watched = sorted(
        {
            (rule.environment, rule.draft.window_ms)
            for rule in rules
            if CATALOGUE[rule.draft.metric].about is About.OPERATIONS
        }
    )
    if not watched:
        return {}
    rows = await database.fetch(
        SQL["operation_figures"],
        organization=[environment.organization for environment, _ in watched],
        project=[environment.project for environment, _ in watched],
        environment=[environment.environment for environment, _ in watched],
        window_ms=[window_ms for _, window_ms in watched],
    )
    return {one: OperationFigures(**row) for one, row in zip(watched, rows, strict=True)}
