"""Answers to producers and consumers as a process counts them, and the operation queue, for Prometheus.

Partitions are never labels: there are as many as keys. `/operations/stats` names the fullest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from weir.errors import WeirError
from weir.exchange.admit import AnswerKey, AnswerTally
from weir.operations.model import OperationStatus
from weir.operations.store import OperationGauges

if TYPE_CHECKING:
    from weir.exchange.service import OperationService


def operation_families(service: OperationService) -> Callable[[], AsyncIterator[Metric]]:
    """A source of metric families. While PostgreSQL is away, the state of the queue is unknown: its gauges
    are left out, and `weir_operation_queue_up` is 0."""

    async def families() -> AsyncIterator[Metric]:
        try:
            gauges = await service.store.gauges()
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
        yield _finished(service.processor.finished)
        for family in _answered(service.tally):
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


def _finished(counts: Mapping[tuple[str, OperationStatus], int]) -> Metric:
    family = CounterMetricFamily(
        "weir_operations_finished",
        "Queued operations that this process ended, by type and status. Their rate is how fast it drains.",
        labels=("type", "status"),
    )
    for (kind, status), count in counts.items():
        family.add_metric((kind, status.value), count)
    return family


def _answered(tally: AnswerTally) -> list[Metric]:
    return [
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
