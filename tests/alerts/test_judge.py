"""Figures of a window: what counts as gone, and what does not."""

from __future__ import annotations

import math

from weir.alerts.alert_metrics import Metric
from weir.alerts.judge import from_sums
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.reading.windows import Sums


def sums(**counts: int) -> Sums:
    return Sums(
        counts={**dict.fromkeys(QUEUE_COUNTERS, 0), **counts},
        wait_count=0,
        wait_sum_ms=0,
        backlog=100,
        oldest_age_ms=0,
        running=0,
    )


def figure(metric: Metric, **counts: int) -> float | None:
    return from_sums(metric, sums(**counts), span_ms=60_000).value


def test_cancelled_messages_are_counted_and_let_a_backlog_drain() -> None:
    assert figure(Metric.CANCELLATIONS, cancelled=7, acked=3) == 7
    assert figure(Metric.DRAIN_TIME, enqueued=10, cancelled=20) == 600_000
    assert figure(Metric.DRAIN_TIME, enqueued=10) == math.inf


def test_cancelled_messages_are_neither_done_nor_failed() -> None:
    assert figure(Metric.THROUGHPUT, acked=60, cancelled=60) == 1
    assert figure(Metric.ERROR_RATE, acked=3, nacked=1, cancelled=60) == 0.25
    assert figure(Metric.DEAD_LETTERS, dead=2, cancelled=60) == 2
