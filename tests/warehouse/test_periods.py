"""Which tier answers, and in buckets of what width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import InvalidInput
from weir.model.durations import DAY_MS, HOUR_MS, MINUTE_MS
from weir.warehouse.reading.periods import (
    DEFAULT_RETENTION_MS,
    MAX_PERIOD_MS,
    Resolution,
    parse_period,
    window_for,
)

NOW_MS = 1_790_000_000_000


@pytest.mark.parametrize(
    ("period", "resolution", "step_ms"),
    [
        ("30m", "5s", 5_000),
        ("2h", "5s", 5_000),
        ("24h", "1m", MINUTE_MS),
        ("7d", "1m", 10 * MINUTE_MS),
        ("30d", "1h", HOUR_MS),
        ("400d", "1h", 12 * HOUR_MS),
    ],
)
def test_a_period_picks_its_resolution_and_coarser_buckets_of_the_same_tier(
    period: str, resolution: str, step_ms: int
) -> None:
    window = window_for(start_ms=NOW_MS - parse_period(period), end_ms=NOW_MS, now_ms=NOW_MS)
    assert (window.resolution, window.step_ms) == (Resolution(resolution), step_ms)


def test_a_tier_that_dropped_the_start_is_not_asked() -> None:
    start_ms = NOW_MS - 10 * DAY_MS
    window = window_for(start_ms=start_ms, end_ms=start_ms + 30 * MINUTE_MS, now_ms=NOW_MS)
    assert window.resolution is Resolution.MINUTE
    start_ms = NOW_MS - 90 * DAY_MS
    window = window_for(start_ms=start_ms, end_ms=start_ms + 30 * MINUTE_MS, now_ms=NOW_MS)
    assert window.resolution is Resolution.HOUR


def test_a_resolution_that_was_asked_for_is_kept() -> None:
    window = window_for(
        start_ms=NOW_MS - 24 * HOUR_MS, end_ms=NOW_MS, now_ms=NOW_MS, resolution=Resolution.FIVE_SECONDS
    )
    assert window.resolution is Resolution.FIVE_SECONDS
    assert window.points <= 1_500


@given(
    age=st.integers(0, 500 * DAY_MS),
    span=st.integers(1, MAX_PERIOD_MS),
    resolution=st.sampled_from([None, *Resolution]),
)
def test_no_answer_has_more_than_1500_points_and_every_bucket_fits_its_tier(
    age: int, span: int, resolution: Resolution | None
) -> None:
    end_ms = NOW_MS - age
    window = window_for(start_ms=end_ms - span, end_ms=end_ms, now_ms=NOW_MS, resolution=resolution)
    assert 1 <= window.points <= 1_500
    assert window.step_ms % window.resolution.step_ms == 0
    assert window.start_ms <= end_ms - span
    assert window.end_ms >= end_ms
    if resolution is None and window.resolution is not Resolution.HOUR:
        assert end_ms - span >= NOW_MS - DEFAULT_RETENTION_MS[window.resolution]


@pytest.mark.parametrize("text", ["", "0m", "-5m", "5", "m", "5y", "1.5.h", "9999999d", "५m", "5m\n"])
def test_what_is_no_period_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_period(text)


@pytest.mark.parametrize(("start", "end"), [(NOW_MS, NOW_MS), (NOW_MS + 5, NOW_MS + 9), (-1, 5), (0, NOW_MS)])
def test_an_empty_future_or_endless_period_is_refused(start: int, end: int) -> None:
    with pytest.raises(InvalidInput):
        window_for(start_ms=start, end_ms=end, now_ms=NOW_MS)
