"""The forecast: when a queue is empty, and what will expire before its turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.alerts.forecast import expiring, outlook_of
from weir.alerts.situation import Situation
from weir.warehouse.reading.pace import Pace


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


def test_a_queue_that_does_not_shrink_is_forecast_not_to_drain() -> None:
    outlook = outlook_of(Situation(depth=9, pace=Pace(arriving=2, leaving=1)), ttl_ms=None)
    assert outlook.summary == "does not drain at the rates of now: 2/s arrive, 1/s leave"


def test_nothing_is_forecast_while_the_rates_are_not_known() -> None:
    outlook = outlook_of(Situation(depth=9, pace=None), ttl_ms=60_000)
    assert outlook.summary == "no forecast: how fast messages arrive and leave is not known"
    assert (outlook.drain_ms, outlook.arriving_per_s, outlook.leaving_per_s) == (None, None, None)
    assert outlook.expiring is None


def test_an_empty_queue_is_empty_though_its_rates_are_not_known() -> None:
    outlook = outlook_of(Situation(depth=0, pace=None), ttl_ms=60_000)
    assert outlook.summary == "empty now; how fast messages arrive and leave is not known"
    assert (outlook.drain_ms, outlook.expiring) == (0, 0)


def test_a_queue_whose_state_is_not_known_is_not_called_empty() -> None:
    outlook = outlook_of(Situation(depth=0, reachable=False), ttl_ms=60_000)
    assert outlook.summary == "no forecast: how fast messages arrive and leave is not known"
    assert (outlook.drain_ms, outlook.expiring) == (None, None)
