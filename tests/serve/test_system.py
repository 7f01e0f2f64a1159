"""The processes that `weir up` runs beside the API: one that dies comes back, and the rest goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.processes import kill9
from weir.embedded.stack import Stack
from weir.errors import WeirError
from weir.serve.system import System, first_ending, running_children

SLEEPS = (sys.executable, "-c", "import time; time.sleep(600)")
REFUSES = (sys.executable, "-c", "import sys; print('a bad setting'); sys.exit(2)")


class QuietStack:
    """A stack whose servers never fail."""

    def __init__(self, folder: Path) -> None:
        self.data_dir = SimpleNamespace(path=folder)
        (folder / "logs").mkdir()

    async def wait_for_failure(self) -> None:
        await asyncio.Event().wait()


@asynccontextmanager
async def running(folder: Path, argv: tuple[str, ...]) -> AsyncIterator[tuple[System, list[str]]]:
    said: list[str] = []
    stack = cast(Stack, cast(Any, QuietStack(folder)))
    system = System(stack=stack, url="", report=said.append, children={}, keepers={})
    async with running_children(system, {"pipeline": argv}):
        yield system, said


async def pid_of(system: System, *, other_than: int | None = None) -> int:
    async with asyncio.timeout(30):
        while True:
            child = system.children["pipeline"].child
            if child is not None and child.status() is None and child.pid != other_than:
                return child.pid
            await asyncio.sleep(0.01)


async def test_a_child_that_is_killed_is_started_again_and_nothing_else_ends(tmp_path: Path) -> None:
    async with running(tmp_path, SLEEPS) as (system, said):
        ending = asyncio.create_task(first_ending(system.endings()))
        first = await pid_of(system)
        kill9(first)
        assert await pid_of(system, other_than=first) != first
        assert not ending.done()
        assert system.children["pipeline"].restarts == 1
        ending.cancel()
    assert "the pipeline ended with signal 9; it is started again in 0.5 s" in said[0]
    assert not system.children["pipeline"].running


async def test_a_child_whose_first_start_is_refused_ends_the_system_with_its_reason(tmp_path: Path) -> None:
    async with running(tmp_path, REFUSES) as (system, _), asyncio.timeout(30):
        with pytest.raises(WeirError, match=r"the pipeline ended with status 2(.|\n)*a bad setting"):
            await first_ending(system.endings())
