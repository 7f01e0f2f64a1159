"""What will expire before its turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.alerts.forecast import expiring


def counted(*, backlog: int, oldest_age_ms: float, served_per_s: float, ttl_ms: float) -> int:
    """The same by looking at every position."""
    return sum(oldest_age_ms * (1 - p / backlog) + p * 1_000 / served_per_s > ttl_ms for p in range(backlog))


@given(
    backlog=st.integers(1, 300),
    oldest=st.integers(0, 100_000),
    served=st.sampled_from([0.5, 1, 4, 100]),
    ttl=st.integers(1, 200_000),
)
def test_the_closed_form_agrees_with_counting(backlog: int, oldest: int, served: float, ttl: int) -> None:
    told = expiring(backlog=backlog, oldest_age_ms=oldest, served_per_s=served, ttl_ms=ttl)
    exact = counted(backlog=backlog, oldest_age_ms=oldest, served_per_s=served, ttl_ms=ttl)
    assert told == pytest.approx(exact, abs=1)


def test_a_queue_that_nobody_serves_loses_everything_and_one_without_ttl_nothing() -> None:
    assert expiring(backlog=9, oldest_age_ms=0, served_per_s=0, ttl_ms=1_000) == 9
    assert expiring(backlog=9, oldest_age_ms=0, served_per_s=0, ttl_ms=None) == 0
    assert expiring(backlog=0, oldest_age_ms=0, served_per_s=0, ttl_ms=1_000) == 0
    assert expiring(backlog=100, oldest_age_ms=0, served_per_s=1, ttl_ms=60_000) == 39
