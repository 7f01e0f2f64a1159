"""The reference page says what the catalogue says."""

from __future__ import annotations

from pathlib import Path

from weir.telemetry.reference import events_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "events.md"


def test_the_events_page_is_the_one_that_the_catalogue_gives() -> None:
    assert PAGE.read_text() == events_page() + "\n"
