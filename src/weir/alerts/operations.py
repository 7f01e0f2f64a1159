"""The operation queue as rules see it: straight from PostgreSQL, so it is known while telemetry is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weir.alerts.metrics import CATALOGUE, About, Metric
from weir.alerts.rule import Rule
from weir.control.database import Database
from weir.control.sql import load_queries
from weir.model.names import EnvironmentRef

SQL = load_queries("weir.alerts", "operations.sql")
Watched = tuple[EnvironmentRef, int]
"""An environment, and the window in milliseconds that is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFigures:
    """The queued operations of one environment: those that wait now, and those that failed in a window."""

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


async def operation_figures(database: Database, rules: Sequence[Rule]) -> Mapping[Watched, OperationFigures]:
    """What the rules about operations want to see; one question for all of them."""
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
