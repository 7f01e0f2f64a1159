"""Fixtures for pytest. Name them in a `conftest.py`: `from weir.testing.fixtures import memory_tasks`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from weir.tasks.app import App
from weir.testing.tasks import MemoryTasks


@pytest.fixture
def memory_tasks() -> Iterator[Callable[[App], MemoryTasks]]:
    """Puts apps on a memory broker with a manual clock, until the test ends.

    ```python
    def test_a_report_is_made_every_night(memory_tasks):
        tasks = memory_tasks(app)
        assert tasks.advance(timedelta(days=1)) == 1
    ```
    """
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(MemoryTasks(app))
