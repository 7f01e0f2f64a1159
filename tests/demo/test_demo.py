"""The demo from start to end, as somebody would run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import processes_using

DEMO = (sys.executable, "-m", "weir.cli", "demo", "--for", "10", "--json")


@pytest.mark.slow
def test_it_ends_by_itself_with_a_summary_and_leaves_nothing_behind(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "demo data"
    done = subprocess.run([*DEMO, "--data-dir", str(folder)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["ok"]
    assert summary["pushed"] > 0
    assert summary["webhooks"] > 0
    assert summary["totals"]["acked"] > 0
    assert set(summary["answers"]) <= {"201", "202", "429"}
    assert summary["restarts"] == {"redis": 0, "postgres": 0, "clickhouse": 0}
    assert len(summary["running"]) == 4
    assert f"{summary['url']}/#/sign-in?token=weir_acme_" in done.stderr
    assert processes_using(str(folder)) == []
