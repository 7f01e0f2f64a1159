"""The ten lines of the README work after the commands that it names."""

from __future__ import annotations

from dev import ROOT
from docs.conftest import READY, UP
from support.pages import code_blocks
from support.reader import Reader


def test_the_ten_lines_of_the_readme_work(returning_reader: Reader) -> None:
    (lines,) = [block for block in code_blocks(ROOT / "README.md") if block.language == "python"]
    assert len(lines.text.splitlines()) == 10
    returning_reader.follow_blocks([UP, READY, lines])
    returning_reader.type("weir queue create orders")
    assert returning_reader.type("python orders.py") == "working on 42\n"
