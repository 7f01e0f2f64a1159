"""The drift of the metrics for Prometheus, from the history of audits; only operators see it.

While ClickHouse is away, or before the first complete audit, the drift is not known and left out.
"""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from weir.errors import WeirError
from weir.warehouse.reading.audits import PastAuditReader


async def drift_families(audits: PastAuditReader) -> list[Metric]:
    """The metric families of the newest complete audit."""
    try:
        audit = await audits.newest_complete()
    except WeirError:
        return []
    if audit is None:
        return []
    drift = GaugeMetricFamily(
        "weir_metrics_drift", "Unexplained differences in the newest complete audit.", audit.drift
    )
    moment = GaugeMetricFamily(
        "weir_metrics_audit_timestamp_seconds",
        "When the newest complete audit began.",
        audit.started_ms / 1_000,
    )
    return [drift, moment]
