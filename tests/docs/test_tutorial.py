"""The tutorial is followed word for word, and its first message is done soon after its first command."""

from __future__ import annotations

import time

import pytest

from dev import ROOT
from support.pages import code_blocks
from support.reader import Reader

TUTORIAL = ROOT / "docs" / "tutorial"
LESSONS = ("first-message", "own-task", "own-code", "retries", "github-webhook", "alert", "charts")
MAX_FIRST_MESSAGE_S = 60.0
"""Installing packages is not part of it."""


def test_the_first_lesson_gets_a_message_done_within_a_minute(
    fresh_reader: Reader, record_property: pytest.RecordProperty
) -> None:
    started_s = time.monotonic()
    assert fresh_reader.follow(TUTORIAL / "first-message.md") >= 8
    took_s = fresh_reader.first_match_s - started_s
    record_property("first_message_s", round(took_s, 1))
    print(f"from `weir up` to the first message that was done: {took_s:.1f} s")
    assert took_s < MAX_FIRST_MESSAGE_S


@pytest.mark.slow
def test_all_lessons_work_as_they_are_written(reader: Reader) -> None:
    for lesson in LESSONS:
        reader.follow(TUTORIAL / f"{lesson}.md")


def test_every_lesson_is_followed() -> None:
    pages = {page.stem for page in TUTORIAL.glob("*.md")} - {"index"}
    assert pages == set(LESSONS)
    assert all(code_blocks(TUTORIAL / f"{lesson}.md") for lesson in LESSONS)
