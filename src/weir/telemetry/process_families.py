"""Publishes the counts of a process since it began, for Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from weir.telemetry.events import WORKER
from weir.telemetry.process_counts import TOTALS, ProcessCounts


def process_families(counts: ProcessCounts) -> Callable[[], AsyncIterator[Metric]]:
    """The source of the families of one process; the texts come from the catalogue."""
    texts = {field.name: field.doc for field in WORKER.fields}

    async def families() -> AsyncIterator[Metric]:
        found = counts.totals()
        for name in TOTALS:
            yield CounterMetricFamily(f"weir_process_{name}", texts[name], value=found[name])
        text = "Messages that failed in this process and wait for their retry."
        yield GaugeMetricFamily("weir_process_backoff", text, value=counts.backoff())

    return families
