"""Durations as people write them."""

from __future__ import annotations

import pytest

from weir.errors import InvalidInput, SpecInvalid
from weir.model.durations import DAY_MS, HOUR_MS, duration_ms, written_ms
from weir.spec.language import read_spec


@pytest.mark.parametrize(
    ("text", "expected"),
    [("250ms", 250), ("90s", 90_000), ("1.5h", HOUR_MS * 3 // 2), ("14d", 14 * DAY_MS), ("2w", 14 * DAY_MS)],
)
def test_a_duration_is_a_number_and_a_unit(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "12", "h", "-1h", "1 h", "1H", "١h", "1e3s", "1h30m", "9" * 400 + "s"])
def test_anything_else_is_refused(text: str) -> None:
    assert written_ms(text) is None
    with pytest.raises(InvalidInput, match="is not a time"):
        duration_ms(text)


@pytest.mark.parametrize("number", ["9" * 12, "9" * 400])
def test_a_duration_without_end_in_a_spec_is_a_mistake_and_not_a_crash(number: str) -> None:
    with pytest.raises(SpecInvalid):
        read_spec(f"app A {{ queue q {{ delivery {{ lease: {number}d }} }} }}", file="a.weir")
