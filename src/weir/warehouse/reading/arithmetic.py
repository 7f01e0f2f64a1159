"""Means, rates and shares that also hold when nothing happened. Pure."""

from __future__ import annotations

import math


def mean(total: float, count: float) -> float | None:
    """A mean from a sum and its weight; None if nothing was measured."""
    return total / count if count > 0 else None


def per_second(count: float, span_ms: int) -> float:
    return count * 1_000 / span_ms if span_ms > 0 else 0.0


def utilization_pct(running: float, limit: float | None) -> float | None:
    """How much of a limit is in use; None without a limit."""
    return 100 * running / limit if limit else None


ATTEMPT_END_COUNTERS = ("acked", "nacked", "dead", "lapsed")
"""The counters of how attempts end: done, then three ways to fail."""


def error_rate(acked: float, *failures: float) -> float | None:
    """The share of finished attempts that failed, from `ATTEMPT_END_COUNTERS`; unknown when none finished.

    A lease that lapsed on the last attempt counts twice, as lapsed and as dead. The rate still stays between
    0 and 1.
    """
    failed = sum(failures)
    return mean(failed, failed + acked)


def drain_ms(*, backlog: float, arrived: float, left: float, span_ms: int) -> float:
    """How long until the backlog is gone if the span's rates go on; infinite if it does not shrink."""
    if backlog <= 0:
        return 0.0
    shrinking = left - arrived
    return backlog * span_ms / shrinking if shrinking > 0 and span_ms > 0 else math.inf
