"""The operation queue for Prometheus: what stands in it now, and what this process counted.

Partitions are never labels: there are as many as keys. `/operations/stats` names the fullest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from weir.errors import WeirError
from weir.operations.desk import OperationGauges
from weir.operations.service import OperationService
from weir.operations.tally import AnswerKey, OperationTally


def operation_families(service: OperationService) -> Callable[[], AsyncIterator[Metric]]:
    """A source of metric families. While PostgreSQL is away what stands in the queue is unknown: it is left
    out, and `weir_operation_queue_up` is 0."""

    async def families() -> AsyncIterator[Metric]:
        try:
            gauges = await service.desk.gauges()
        except WeirError:
            gauges = None
        yield _gauge("up", "1 if the operation queue could be read.", int(gauges is not None))
        if gauges is not None:
            for family in _standing(gauges):
                yield family
        text = (
            "Operations per second that all processes together finish, as measured when they last had some."
        )
        yield _gauge("drain_per_second", text, service.sampler.rate.per_s)
        for family in _counted(service.tally):
            yield family

    return families


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"weir_operation_queue_{name}", text, value)


def _standing(gauges: OperationGauges) -> list[Metric]:
    depth = GaugeMetricFamily(
        "weir_operation_queue_depth", "Operations that are not finished, by type.", labels=("type",)
    )
    for kind, count in gauges.unfinished.items():
        depth.add_metric((kind,), count)
    return [
        depth,
        _gauge(
            "oldest_age_seconds",
            "Age of the oldest operation that is not finished; 0 if there is none.",
            gauges.oldest_age_ms / 1000,
        ),
        _gauge("failed", "Failed operations that can be tried again by hand.", gauges.failed),
    ]


def _counted(tally: OperationTally) -> list[Metric]:
    finished = CounterMetricFamily(
        "weir_operations_finished",
        "Queued operations that this process ended, by type and status. Their rate is how fast it drains.",
        labels=("type", "status"),
    )
    for (kind, status), count in tally.finished.items():
        finished.add_metric((kind, status.value), count)
    return [
        finished,
        _answers(
            "push",
            "Answers to pushes and webhooks by status and reason, one for each message; a request that was "
            "turned away unread counts as one.",
            tally.pushes,
        ),
        _answers(
            "settle",
            "Answers to acks and nacks by status and reason, one for each lease.",
            tally.settlements,
        ),
    ]


def _answers(what: str, text: str, counts: Counter[AnswerKey]) -> Metric:
    family = CounterMetricFamily(f"weir_{what}_answers", text, labels=("status", "reason"))
    for (status, reason), count in counts.items():
        family.add_metric((status, reason), count)
    return family
