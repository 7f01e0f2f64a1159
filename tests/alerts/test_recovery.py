"""A queue that was backed up and is well again says since when."""

from __future__ import annotations

import pytest

from weir.alerts.recovery import Recovery, recovery_of
from weir.warehouse.reading.series import PointKind, Series

STEP_MS = 5_000


def series(*ages_ms: int | None) -> Series:
    times = range(0, STEP_MS * len(ages_ms), STEP_MS)
    return Series(
        times_ms=times, kinds=[PointKind.MEASURED] * len(times), columns={"oldest_age_ms": list(ages_ms)}
    )


def test_it_recovered_at_the_end_of_the_last_bucket_with_a_long_wait() -> None:
    found = recovery_of(series(0, 40_000, 200_000, 31_000, 2_000, None, 0))
    assert found == Recovery(since_ms=4 * STEP_MS, longest_wait_ms=200_000)


@pytest.mark.parametrize("ages_ms", [(), (0, 30_000, 0), (None, None), (0, 40_000), (0, 40_000, None)])
def test_a_queue_that_was_well_or_still_is_not_has_no_recovery(ages_ms: tuple[int | None, ...]) -> None:
    assert recovery_of(series(*ages_ms)) is None


def test_the_sentence_says_how_long_ago_and_when() -> None:
    found = Recovery(since_ms=1_763_337_600_000, longest_wait_ms=200_000)
    assert found.summary(now_ms=1_763_337_600_000 + 245_300) == (
        "recovered 4 min 5 s ago, at 2025-11-17 00:00:00 UTC; messages had waited up to 3 min 20 s"
    )
