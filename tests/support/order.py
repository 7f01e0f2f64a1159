"""The order in which test files are handed to the test processes: those that take longest first.

A file is the unit that a process gets. With the short ones last, no process works alone for long at the end.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

LONGEST = (
    "docs/test_how_to.py",
    "pipeline/test_transforms.py",
    "tasks/test_worker.py",
    "embedded/test_up.py",
    "dashboard/test_administration.py",
    "dashboard/test_pages.py",
    "broker/test_machine.py",
    "pipeline/test_spark.py",
    "pipeline/test_rebuild.py",
    "pipeline/test_lives.py",
    "tasks/test_workflows.py",
    "serve/test_hanging_postgres.py",
    "docs/test_examples.py",
    "cli/test_extras.py",
    "cli/test_whole_system.py",
    "deploy/test_roles.py",
    "serve/test_deadlines.py",
    "api/test_whole_api.py",
    "warehouse/test_reading.py",
    "docs/test_tutorial.py",
    "pipeline/test_own_metric.py",
    "pipeline/test_ownership.py",
    "embedded/test_append_only.py",
    "embedded/test_old_folder.py",
    "embedded/test_bad_input.py",
    "client/test_examples.py",
    "tasks/test_tutorial.py",
    "pipeline/test_old_folder.py",
    "pipeline/test_dead_letter_analysis.py",
    "alerts/test_causes.py",
)
"""On two cores, beginning with the longest. Others follow by their number of tests."""


def sort_by_length(items: list[pytest.Item]) -> None:
    """Sort tests by their files; within a file their order stays."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST)}
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (ranks.get(item.path, len(ranks)), -sizes[item.path], str(item.path)))
