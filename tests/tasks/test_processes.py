"""Processes of tasks: their start has a bound of its own, and does not count into the time of the task."""

from __future__ import annotations

import json
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from support.processes import is_alive
from support.waiting import wait_until
from weir.tasks import processes
from weir.tasks.processes import TaskCrashed, TaskProcesses
from weir.workers.handler_time import begin_handler_time

# Importing it takes longer than the task may take.
SLOW_APP = """
import time
from weir import App

time.sleep({start_s})
app = App(name="slow")


@app.task(queue="q", process=True)
def rest(seconds: float) -> str:
    time.sleep(seconds)
    return "rested"
"""
TIMEOUT_MS = 1_000


def made_app(folder: Path, monkeypatch: pytest.MonkeyPatch, *, start_s: float) -> TaskProcesses:
    (folder / "slow_app.py").write_text(SLOW_APP.format(start_s=start_s))
    monkeypatch.syspath_prepend(str(folder))
    return TaskProcesses("slow_app:app")


async def rest(called: TaskProcesses, seconds: float) -> object:
    limit = begin_handler_time(TIMEOUT_MS)
    assert limit is not None
    return await limit.bound(called.call("rest", json.dumps({"seconds": seconds}).encode()))


async def test_the_start_of_a_process_does_not_count_into_the_time_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aclosing(made_app(tmp_path, monkeypatch, start_s=1.5)) as called:
        assert await rest(called, 0) == "rested"
        with pytest.raises(TimeoutError):
            await rest(called, 600)


async def test_a_task_that_hangs_in_a_new_process_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aclosing(made_app(tmp_path, monkeypatch, start_s=0)) as called:
        with pytest.raises(TimeoutError):
            await rest(called, 600)


async def test_a_process_that_does_not_start_fails_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "START_S", 0.5)
    async with aclosing(made_app(tmp_path, monkeypatch, start_s=600)) as called:
        with pytest.raises(TaskCrashed, match="the process of the task `rest` did not start within"):
            await rest(called, 0)


async def test_a_process_that_ends_while_it_starts_fails_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_app.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TaskCrashed, match="ended with"):
        await rest(TaskProcesses("slow_app:app"), 0)


async def test_an_idle_process_that_was_killed_costs_no_call_an_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Servers of other tests may be children too.
    before = set(psutil.Process().children())
    async with aclosing(made_app(tmp_path, monkeypatch, start_s=0)) as called:
        assert await rest(called, 0) == "rested"
        (killed,) = set(psutil.Process().children()) - before
        killed.kill()
        # The event loop has no turn meanwhile, so it does not know yet.
        wait_until(lambda: not is_alive(killed.pid))
        assert await rest(called, 0) == "rested"
