"""The applications in `examples/` do what their READMEs say."""

from __future__ import annotations

import shutil

import pytest

from dev import ROOT
from support.reader import Reader
from support.waiting import wait_until

EXAMPLES = ROOT / "examples"
LONG = {"watch"}
"""Examples that wait for an alert, and for Spark."""
NAMES = sorted(folder.name for folder in EXAMPLES.iterdir() if (folder / "README.md").is_file())


def follow(name: str, reader: Reader) -> None:
    shutil.copytree(EXAMPLES / name, reader.folder, dirs_exist_ok=True)
    for program in reader.folder.glob("*.py"):
        program.write_text(reader.spelled(program.read_text()))
    assert reader.follow(EXAMPLES / name / "README.md") >= 5


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LONG])
def test_an_example_does_what_its_readme_says(name: str, returning_reader: Reader) -> None:
    follow(name, returning_reader)


@pytest.mark.slow
def test_a_stuck_queue_rings_the_pager(returning_reader: Reader) -> None:
    follow("watch", returning_reader)
    pager = returning_reader.terminals["Terminal 2"]
    wait_until(lambda: "firing: Stuck" in pager.shown(), timeout_s=60, what="the alert at the pager")


def test_every_example_is_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    assert [name for name in NAMES if f"({name}/README.md)" not in listed] == []
    assert len(NAMES) >= 4
