"""The symptoms in the guide on troubleshooting are the words that programs print."""

from __future__ import annotations

import re

import pytest

from dev import ROOT
from weir.alerts.verdict import Cause

GUIDE = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text()
CALM = {Cause.HEALTHY, Cause.UNKNOWN}
SOURCES = "\n".join(file.read_text() for file in sorted((ROOT / "src" / "weir").rglob("*.py")))


def symptoms(heading: str) -> list[str]:
    """The first column of the table under a heading, without its head."""
    section = GUIDE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)
    return [cell for cell in cells[1:] if cell]


def test_every_cause_of_a_stuck_queue_has_its_remedy() -> None:
    told = {word for cell in symptoms("A queue does not drain") for word in cell.split(", ")}
    assert {cause.replace("_", " ") for cause in Cause if cause not in CALM} <= told


@pytest.mark.parametrize("words", symptoms("Weir does not start"))
def test_a_program_that_does_not_start_says_so_in_these_words(words: str) -> None:
    assert words in SOURCES


def test_an_outbound_request_is_refused_in_these_words() -> None:
    (words,) = re.findall(r'^## An outbound request is refused: "(.*)"$', GUIDE, re.MULTILINE)
    assert words in SOURCES
