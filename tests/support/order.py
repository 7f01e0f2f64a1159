"""The order in which test files are handed to the test processes: those that take longest first.

A file is the unit that a process gets. With the short ones last, no process works alone for long at the end.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

LONGEST: tuple[str, ...] = ()
"""On two cores, beginning with the longest. Others follow by their number of tests."""


def sort_by_length(items: list[pytest.Item]) -> None:
    """Sort tests by their files; within a file their order stays."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST)}
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (ranks.get(item.path, len(ranks)), -sizes[item.path], str(item.path)))
