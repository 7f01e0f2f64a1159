"""Numbers as people say them."""

from __future__ import annotations

import pytest

from weir.model.wording import amount, duration, duration_beside, number, rate, share, span


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (85.4, "85 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (42_600, "42.6 s"),
        (59_940, "59.9 s"),
        (59_960, "1 min"),
        (60_000, "1 min"),
        (200_000, "3 min 20 s"),
        (3_600_000, "1 h"),
        (7_500_000, "2 h 5 min"),
        (3_601_000, "1 h"),
        (345_600_000, "4 d"),
        (100 * 86_400_000 + 3_600_000, "100 d 1 h"),
    ],
)
def test_a_duration_reads_as_people_say_it(ms: float, text: str) -> None:
    assert duration(ms) == text


def test_amounts_rates_and_shares_have_their_units() -> None:
    assert (amount(1, "attempt"), amount(0, "attempt"), amount(1_200, "message")) == (
        "1 attempt",
        "0 attempts",
        "1,200 messages",
    )
    assert (rate(31.24), rate(2, "message"), rate(0)) == ("31.2/s", "2 messages/s", "0/s")
    assert (share(0.125), share(1)) == ("12 %", "100 %")
    assert (number(2_533.4), number(0.12134), number(1e9)) == ("2,533", "0.121", "1,000,000,000")


@pytest.mark.parametrize(
    ("ms", "other_ms", "text"),
    [(200, 3_478, "0.2 s"), (200, 900, "200 ms"), (30, 2_000, "30 ms"), (1_500, 70_000, "1.5 s")],
)
def test_two_durations_beside_each_other_have_one_unit(ms: float, other_ms: float, text: str) -> None:
    assert duration_beside(ms, other_ms) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (60_000, "1 minute"),
        (300_000, "5 minutes"),
        (90_000, "1 min 30 s"),
        (7_200_000, "2 hours"),
        (0, "0 ms"),
    ],
)
def test_a_span_is_written_in_full_where_it_is_whole(ms: int, text: str) -> None:
    assert span(ms) == text
