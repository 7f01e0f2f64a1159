"""The beginning of the page on tasks, word for word: from an empty folder to a task that ran."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.waiting import until
from tasks.test_examples import PAGE, examples_in

START_S = 120.0


@pytest.mark.slow
async def test_a_task_runs_after_three_commands(tmp_path: Path) -> None:
    code = examples_in(PAGE.read_text())[0]
    (tmp_path / "shop.py").write_text(code)
    found = re.search(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    up, worker, push = found[1].splitlines()
    with ExitStack() as stack:
        _start(stack, up, tmp_path, log="up.log")
        await until(lambda: "http://" in (tmp_path / "up.log").read_text(), within_s=START_S)
        _start(stack, worker, tmp_path, log="worker.log")
        await until(lambda: "working as" in (tmp_path / "worker.log").read_text(), within_s=START_S)
        shown = subprocess.run(  # noqa: ASYNC221
            push,
            shell=True,
            cwd=tmp_path,
            env=_environment(tmp_path),
            capture_output=True,
            text=True,
            check=False,
        )
    assert shown.stdout == "welcome sent to a@example.com\n", shown.stderr


def _start(stack: ExitStack, command: str, folder: Path, *, log: str) -> None:
    output = stack.enter_context((folder / log).open("wb"))
    process = subprocess.Popen(
        f"exec {command}", shell=True, cwd=folder, env=_environment(folder), stdout=output, stderr=output
    )

    def stop() -> None:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=START_S)

    stack.callback(stop)


def _environment(folder: Path) -> dict[str, str]:
    """What an installed Weir would give: `weir` and `python` on the path."""
    weir = folder / "bin" / "weir"
    if not weir.exists():
        weir.parent.mkdir()
        weir.write_text(f'#!/bin/sh\nexec {sys.executable} -m weir.cli "$@"\n')
        weir.chmod(0o755)
    path = os.pathsep.join([str(weir.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "WEIR_API__PORT": "0"}
