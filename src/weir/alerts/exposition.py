"""Prometheus metrics about alerting: alerts that fire, notifications that wait, and the last evaluation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from weir.control.database import Database
from weir.control.sql import load_queries
from weir.errors import Unavailable
from weir.model.clock import Clock, SystemClock

SQL = load_queries("weir.alerts", "exposition.sql")


def alert_families(database: Database, *, clock: Clock | None = None) -> Callable[[], AsyncIterator[Metric]]:
    """A source of metric families; it yields none while PostgreSQL is away."""
    watch = clock or SystemClock()

    async def families() -> AsyncIterator[Metric]:
        try:
            row = await database.fetch_one(SQL["alert_counts"])
        except Unavailable:
            return
        if row is None:
            return
        yield GaugeMetricFamily("weir_alerts_firing", "Alerts that are not resolved.", row["firing"])
        yield GaugeMetricFamily(
            "weir_alert_notifications_waiting", "Notifications that are not sent yet.", row["waiting"]
        )
        if row["evaluated_at_ms"] is not None:
            age_s = (watch.now_ms() - row["evaluated_at_ms"]) / 1_000
            yield GaugeMetricFamily(
                "weir_alert_evaluation_age_seconds", "Time since the rules were last evaluated.", age_s
            )
            yield GaugeMetricFamily(
                "weir_alert_evaluation_duration_seconds",
                "How long the last evaluation took.",
                row["took_ms"] / 1_000,
            )

    return families
