"""A child process: its environment is its own business, and it does not outlive a bench."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benches.children import child
from support.processes import is_alive, kill9
from support.waiting import wait_until
from weir.embedded.child import Child, ChildCommand

ROOT = Path(__file__).parents[2]
BENCH = """
import asyncio, sys
from pathlib import Path
from benches.children import child

async def main():
    async with child("-c", "import time; time.sleep(600)", folder=Path(sys.argv[1])) as one:
        print(one.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_what_a_child_is_told_in_its_environment_stands_on_no_command_line(tmp_path: Path) -> None:
    shell = ("/bin/sh", "-c", 'echo "$TOLD"; env')
    one = Child(ChildCommand(argv=shell, cwd=tmp_path, env={"TOLD": "a secret"}), log=tmp_path / "log")
    assert "a secret" not in " ".join(psutil.Process(one.pid).cmdline())
    assert await one.wait() == 0
    lines = one.last_lines(100)
    assert lines[0] == "a secret"
    assert not [line for line in lines if line.startswith("PYTEST_")]


def test_what_a_bench_runs_ends_with_it_even_when_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BENCH, tmp_path]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        pid = int(bench.stdout.readline())
        kill9(bench.pid)
    wait_until(lambda: not is_alive(pid), what="the end of what the bench ran")


async def test_a_bench_that_fails_says_what_its_processes_said_last(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError) as failed:
        await _fail(tmp_path)
    assert "no room" in failed.value.__notes__[0]


async def _fail(folder: Path) -> None:
    async with child("-c", "raise SystemExit('no room')", folder=folder) as one:
        await one.wait()
        raise TimeoutError
