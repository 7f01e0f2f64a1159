from __future__ import annotations

from weir.model.backoff import Backoff

BACKOFF = Backoff(first_s=0.5, longest_s=3.0)


def test_pauses_double_up_to_the_longest() -> None:
    assert [BACKOFF.pause_s(failures) for failures in (1, 2, 3, 4, 5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_years_of_failures_still_have_a_pause() -> None:
    assert BACKOFF.pause_s(1_000_000) == 3.0
