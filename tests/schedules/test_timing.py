"""When schedules tick: intervals, cron in time zones, and the two days of a year on which clocks change."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import InvalidInput
from weir.spec.ir import Timing
from weir.spec.timing import check_timing, newest_ticks, next_ticks, ticks_after

HOUR_MS = 3_600_000
SPRING = "2026-03-29"
"""In Berlin 02:00 becomes 03:00."""
AUTUMN = "2026-10-25"
"""In Berlin 03:00 becomes 02:00."""
CRONS = ("* * * * *", "*/7 * * * *", "0 3 * * *", "30 2 * * *", "0 0 1 * *", "15 10 * * MON-FRI", "0 0 L * *")


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


def berlin(cron: str) -> Timing:
    return Timing(cron=cron, timezone="Europe/Berlin")


def local_times(timing: Timing, after: str, count: int) -> list[str]:
    zone = ZoneInfo(timing.timezone)
    ticks = next_ticks(timing, ms(after), count)
    return [f"{datetime.fromtimestamp(tick / 1_000, zone):%m-%d %H:%M %z}" for tick in ticks]


def test_a_time_that_is_left_out_in_spring_ticks_once_at_the_jump():
    assert local_times(berlin("30 2 * * *"), f"{SPRING}T00:00", 2) == [
        "03-29 03:00 +0200",
        "03-30 02:30 +0200",
    ]


def test_a_time_that_comes_twice_in_autumn_ticks_once_the_first_time():
    found = local_times(berlin("30 2 * * *"), f"{AUTUMN}T00:00", 2)
    assert found == ["10-25 02:30 +0200", "10-26 02:30 +0100"]


def test_asked_between_the_two_equal_hours_the_tick_of_the_first_does_not_come_again():
    assert local_times(berlin("30 2 * * *"), f"{AUTUMN}T01:10", 1) == ["10-26 02:30 +0100"]


def test_a_tick_of_every_half_hour_follows_the_time_that_passes():
    spring = local_times(berlin("*/30 * * * *"), f"{SPRING}T00:00", 4)
    assert spring == [
        "03-29 01:30 +0100",
        "03-29 03:00 +0200",
        "03-29 03:30 +0200",
        "03-29 04:00 +0200",
    ]
    autumn = next_ticks(berlin("*/30 * * * *"), ms(f"{AUTUMN}T00:00"), 6)
    assert {later - earlier for earlier, later in pairwise(autumn)} == {HOUR_MS // 2}


@pytest.mark.parametrize("day", [SPRING, AUTUMN])
def test_a_nightly_tick_comes_once_on_a_day_on_which_clocks_change(day):
    found = newest_ticks(
        berlin("0 3 * * *"), after_ms=ms(f"{day}T00:00") - HOUR_MS, until_ms=ms(f"{day}T22:00"), limit=9
    )
    assert len(found[0]) == 1


def test_an_interval_counts_from_the_epoch_whoever_asks():
    timing = Timing(every_ms=30_000)
    assert next_ticks(timing, 1_000_000_000_001, 2) == [1_000_000_020_000, 1_000_000_050_000]
    assert next_ticks(timing, 1_000_000_020_000, 1) == [1_000_000_050_000]


@given(
    cron=st.sampled_from(CRONS),
    start=st.integers(ms("2025-01-01"), ms("2027-01-01")),
    span=st.integers(0, 40 * 24 * HOUR_MS),
    limit=st.integers(1, 50),
)
def test_the_newest_ticks_of_a_span_are_the_last_of_all_its_ticks(cron, start, span, limit):
    timing = berlin(cron)
    every: list[int] = []
    for tick in ticks_after(timing, start):
        if tick > start + span or len(every) > 3_000:
            break
        every.append(tick)
    if len(every) <= 3_000:
        found, older = newest_ticks(timing, after_ms=start, until_ms=start + span, limit=limit)
        assert (found, older) == (every[-limit:], len(every) > limit)


@given(
    every=st.integers(1_000, 100_000),
    start=st.integers(0, 10**13),
    span=st.integers(0, 10**7),
    limit=st.integers(1, 20),
)
def test_the_newest_ticks_of_an_interval_are_the_last_of_all_its_ticks(every, start, span, limit):
    ticks = [tick for tick in range(start - start % every, start + span + 1, every) if tick > start]
    found, older = newest_ticks(Timing(every_ms=every), after_ms=start, until_ms=start + span, limit=limit)
    assert (found, older) == (ticks[-limit:], len(ticks) > limit)


def test_years_of_missed_minutes_are_searched_from_their_end():
    found, older = newest_ticks(
        Timing(cron="* * * * *"), after_ms=ms("2000-01-01"), until_ms=ms("2026-01-01"), limit=1_000
    )
    assert (len(found), found[-1], older) == (1_000, ms("2026-01-01"), True)


@pytest.mark.parametrize(
    ("timing", "said"),
    [
        (Timing(), "either `cron` or `every`"),
        (Timing(cron="* * * * *", every_ms=1_000), "either `cron` or `every`"),
        (Timing(every_ms=999), "`every` is 999 ms; expected at least 1 s"),
        (Timing(cron="* * * *"), "expected five fields"),
        (Timing(cron="* * * * * *"), "expected five fields"),
        (Timing(cron="@daily"), "expected five fields"),
        (Timing(cron="61 * * * *"), "bad minute"),
        (Timing(cron="* * * * MON#6"), "bad day-of-week"),
        (Timing(cron="* * * * MON#1/2"), "not a cron expression"),
        (Timing(cron="0 0 30 2 *"), "bad day-of-month"),
        (Timing(cron="9" * 5_000 + " * * * *"), "expected five fields"),
        (Timing(cron="* * * * *", timezone="Europe/Berln"), "did you mean `Europe/Berlin`?"),
        (Timing(cron="* * * * *", timezone="../../etc/passwd"), "there is no time zone"),
        (Timing(cron="* * * * *", timezone=""), "there is no time zone"),
    ],
)
def test_a_timing_that_cannot_tick_is_refused(timing, said):
    with pytest.raises(InvalidInput, match=said.replace("?", r"\?")):
        check_timing(timing)
