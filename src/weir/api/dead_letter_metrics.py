"""`dead_job_count` and the audit's drift for Prometheus, read from PostgreSQL whenever Prometheus asks.

Every process reads the same rows, so no count is stale and no two processes disagree. A consumer without
dead messages shows 0. While PostgreSQL is away the counts are unknown: they are left out and `weir_dlq_up`
is 0.
"""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from weir.control.principals import Principal
from weir.deadletters.audit import Audit, last_audit
from weir.deadletters.services import DeadLetterServices
from weir.deadletters.summary import ConsumerStatus, read_summary
from weir.errors import WeirError

LABELS = ("channel", "consumer", "organization", "project", "environment")


async def dead_letter_families(services: DeadLetterServices, viewer: Principal) -> list[Metric]:
    """The metric families of dead letters that this viewer may see."""
    try:
        rows = await read_summary(services.database, viewer)
        audit = await last_audit(services.database)
    except WeirError:
        return [_up(False)]
    return [_up(True), _counts(rows), *_drift(audit)]


def _counts(rows: list[ConsumerStatus]) -> Metric:
    # Consumers know this name. promtool complains about it, because it reserves `_count` for histograms.
    family = GaugeMetricFamily("dead_job_count", "Number of dead jobs per consumer", labels=LABELS)
    for row in rows:
        labels = (row.channel_id, row.consumer_id, row.organization, row.project, row.environment)
        family.add_metric(labels, row.dead_count)
    return family


def _drift(audit: Audit | None) -> list[Metric]:
    if audit is None:
        return []
    drift = GaugeMetricFamily("weir_dlq_drift", "What the latest audit had to repair; must be 0.")
    drift.add_metric((), audit.drift)
    moment = GaugeMetricFamily("weir_dlq_audit_timestamp_seconds", "When the latest audit began.")
    moment.add_metric((), audit.started_at_ms / 1000)
    return [drift, moment]


def _up(up: bool) -> Metric:
    family = GaugeMetricFamily("weir_dlq_up", "1 if the counts of dead messages could be read.")
    family.add_metric((), int(up))
    return family
