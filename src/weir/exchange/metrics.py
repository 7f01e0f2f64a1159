"""Answers to producers and consumers as a process counts them, and the operation queue, for Prometheus.

Partitions are never labels: there are as many as keys. `/operations/stats` names the fullest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from weir.errors import Overloaded, WeirError
from weir.exchange.seam import (
    PushAnswer,
    Pushed,
    Pusher,
    PushItem,
    Queued,
    Refused,
    SettleAnswer,
    SettleItem,
    Settler,
)
from weir.model.message import Settlement
from weir.operations.model import OperationStatus
from weir.operations.store import OperationGauges

if TYPE_CHECKING:
    from weir.exchange.service import OperationService

AnswerKey = tuple[str, str]
"""Status and reason. Both come from closed lists, so that the series stay few."""

EXECUTED = "executed"
_PUSHED: AnswerKey = ("201", EXECUTED)
_DUPLICATE: AnswerKey = ("201", "duplicate")
_SETTLED: AnswerKey = ("200", EXECUTED)
_LAPSED: AnswerKey = ("409", "lease_lost")


class AnswerTally:
    """Answers since this process began, by status and reason."""

    def __init__(self) -> None:
        self.pushes: Counter[AnswerKey] = Counter()
        self.settlements: Counter[AnswerKey] = Counter()

    def count_refusal(self, error: WeirError, *, times: int = 1) -> None:
        """Pushes were refused before they were read."""
        self.pushes[_refusal(error)] += times


class CountedPusher:
    """A `Pusher` whose answers are counted: one for each message."""

    def __init__(self, inner: Pusher, tally: AnswerTally) -> None:
        self._inner = inner
        self._tally = tally

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        try:
            answers = await self._inner.push(items)
        except WeirError as error:
            self._tally.count_refusal(error, times=len(items))
            raise
        self._tally.pushes.update(map(_push_key, answers))
        return answers


class CountedSettler:
    """A `Settler` whose answers are counted: one for each lease."""

    def __init__(self, inner: Settler, tally: AnswerTally) -> None:
        self._inner = inner
        self._tally = tally

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleAnswer]:
        answers = await self._inner.settle(items)
        self._tally.settlements.update(map(_settle_key, answers))
        return answers


def _push_key(answer: PushAnswer) -> AnswerKey:
    if isinstance(answer, Pushed):
        return _DUPLICATE if answer.duplicate else _PUSHED
    return _later_or_never(answer)


def _settle_key(answer: SettleAnswer) -> AnswerKey:
    if isinstance(answer, Queued | Refused):
        return _later_or_never(answer)
    return _LAPSED if answer.outcome is Settlement.LAPSED else _SETTLED


def _later_or_never(answer: Queued | Refused) -> AnswerKey:
    return ("202", answer.reason) if isinstance(answer, Queued) else _refusal(answer.error)


def _refusal(error: WeirError) -> AnswerKey:
    """A refusal for load has a reason of its own; any other is known by its code."""
    reason = error.extra.get("reason") if isinstance(error, Overloaded) else None
    return str(error.status), str(reason or error.code)


def operation_families(service: OperationService) -> Callable[[], AsyncIterator[Metric]]:
    """A source of metric families. While PostgreSQL is away what stands in the queue is unknown: it is left
    out, and `weir_operation_queue_up` is 0."""

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
