"""The locked packages must install to the same files every time."""

from __future__ import annotations

from collections import defaultdict
from importlib.metadata import distributions


def test_no_two_packages_write_the_same_file() -> None:
    """They install in parallel, so either could win, and one checkout would differ from the next."""
    owners: dict[str, list[str]] = defaultdict(list)
    for distribution in distributions():
        for file in distribution.files or ():
            owners[str(file)].append(distribution.name)
    shared = {file: names for file, names in owners.items() if len(set(names)) > 1}
    assert not shared
