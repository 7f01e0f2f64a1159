"""The demo from start to end, as somebody would run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import processes_using
from support.waiting import wait_until

DEMO = (sys.executable, "-m", "weir.cli", "demo", "--json")


@pytest.mark.slow
def test_it_ends_by_itself_with_a_summary_and_leaves_nothing_behind(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "demo data"
    done = subprocess.run(
        [*DEMO, "--for", "10", "--data-dir", str(folder)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["ok"]
    assert summary["pushed"] > 0
    assert summary["webhooks"] > 0
    assert summary["totals"]["acked"] > 0
    assert set(summary["answers"]) <= {"201", "202", "429"}
    assert set(summary["restarts"].values()) == {0}
    assert len(summary["running"]) == 4
    assert f"{summary['url']}/#/sign-in?token=weir_acme_" in done.stderr
    assert processes_using(str(folder)) == []
    assert "warning" not in done.stderr, done.stderr


@pytest.mark.slow
def test_ctrl_c_ends_it_with_its_summary_too(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "data"
    with subprocess.Popen(
        [*DEMO, "--data-dir", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stderr is not None
        assert demo.stdout is not None
        wait_until(lambda: "Ctrl-C ends" in demo.stderr.readline(), timeout_s=120, what="the welcome")
        demo.send_signal(signal.SIGINT)
        summary = json.loads(demo.stdout.read().splitlines()[-1])
        assert demo.wait(timeout=60) == 0
    assert summary["ok"]
    assert "totals" in summary
    assert processes_using(str(folder)) == []


def test_ctrl_c_before_it_is_ready_says_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with subprocess.Popen(
        [*DEMO, "--data-dir", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stderr is not None
        wait_until(lambda: "starting" in demo.stderr.readline(), timeout_s=60, what="the first line")
        demo.send_signal(signal.SIGINT)
        said, _ = demo.communicate(timeout=60)
    assert json.loads(said.splitlines()[-1]) == {"ok": False, "problem": "stopped before it was ready"}
