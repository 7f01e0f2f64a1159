"""Runs the peers of the broker and the client bench in their own environment, each in its own process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benches.figures import say

_HERE = Path(__file__).parent
_ROOT = _HERE.parent
_LOCK = _ROOT / "requirements-bench.lock"
_VENV = _ROOT / ".venv-bench"
_BULLMQ_HOME = _VENV / "bullmq"
_PEER_S = 90
PYTHON_PEERS = ("huey", "dramatiq", "arq", "saq", "rq", "celery")
"""Peers that use Redis as Weir does, and were always measured."""
TASK_PEERS = (*PYTHON_PEERS, "taskiq", "streaq", "procrastinate")
"""Peers whose users decorate a function. `procrastinate` uses PostgreSQL."""

Figures = dict[str, Any]


def prepare() -> None:
    """Install the locked peers beside Weir's own environment, once."""
    stamp = _VENV / ".stamp"
    wanted = _LOCK.read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    uv = Path(sys.executable).with_name("uv")
    _say("installing the peers into .venv-bench")
    subprocess.run([uv, "venv", "-q", "--clear", "--python", sys.executable, _VENV], check=True)
    python = _VENV / "bin" / "python"
    subprocess.run(
        [uv, "pip", "install", "-q", "--python", python, "--require-hashes", "-r", _LOCK], check=True
    )
    stamp.write_text(wanted)


def measure(
    url: str,
    *,
    jobs: int,
    batch: int,
    flush: Callable[[], None],
    python_peers: Sequence[str] = PYTHON_PEERS,
    postgres_url: str = "",
) -> dict[str, Figures]:
    """Measure these Python peers, and BullMQ if it can run here, one after the other on an empty server."""
    prepare()
    results: dict[str, Figures] = {}
    environment = {**os.environ, "BENCH_POSTGRES": postgres_url}
    for name in python_peers:
        flush()
        script = _HERE / "peers" / f"{name}_peer.py"
        results[name] = _run([_VENV / "bin" / "python", script], url, jobs, batch, environment)
        _say(f"{name}: {results[name]}")
    node = shutil.which("node")
    if node and _prepare_bullmq():
        flush()
        results["bullmq"] = _run([node, _BULLMQ_HOME / "peer.mjs"], url, jobs, batch, environment)
        _say(f"bullmq: {results['bullmq']}")
    return results


def _prepare_bullmq() -> bool:
    npm = shutil.which("npm")
    if npm is None:
        return False
    _BULLMQ_HOME.mkdir(exist_ok=True)
    for file in (_HERE / "bullmq").iterdir():
        shutil.copy(file, _BULLMQ_HOME / file.name)
    if (_BULLMQ_HOME / "node_modules" / "bullmq").is_dir():
        return True
    _say("installing BullMQ")
    # `npm ci` insists on optional packages of every platform; the lock's checksums hold here too.
    command = [npm, "install", "--no-audit", "--no-fund", "--omit=optional", "--ignore-scripts"]
    return subprocess.run(command, cwd=_BULLMQ_HOME, capture_output=True, check=False).returncode == 0


def _run(command: list[Any], url: str, jobs: int, batch: int, environment: Mapping[str, str]) -> Figures:
    try:
        finished = subprocess.run(
            [*command, url, str(jobs), str(batch)],
            capture_output=True,
            text=True,
            timeout=_PEER_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failed": [f"not done within {_PEER_S} s"]}
    lines = [line for line in finished.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"failed": finished.stderr.strip().splitlines()[-1:] or ["no figures"]}
    figures: Figures = json.loads(lines[-1])
    both = end_to_end(figures["bulk_enqueue_per_s"], figures["process_per_s"])
    return {**figures, "end_to_end_per_s": round(both)}


def end_to_end(pushed_per_s: float, worked_per_s: float) -> float:
    """Jobs per second from the first push to the last handler, if all are pushed before the first runs."""
    return 1 / (1 / pushed_per_s + 1 / worked_per_s)


def _say(text: str) -> None:
    say(f"bench: {text}")
