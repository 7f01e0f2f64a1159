"""`weir up` outlives each of its processes: each is killed in turn, again and again, while messages flow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx2
import psutil
import pytest

from support.processes import descendants, kill9
from support.waiting import wait_until

ROUNDS = 10
# One process of each kind, by a word of its command line.
KINDS = {
    "redis": "valkey-server",
    "postgres": "postgres",
    "clickhouse": "weir.embedded.chdb",
    "pipeline": "weir.cli pipeline run",
    "jvm": "org.apache.spark.deploy.SparkSubmit",
    "planner": "weir.pipeline.early_runner",
    "readers": "weir.pipeline.worker_daemon",
}


class WholeUp:
    """A `weir up` with its pipeline."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "weir.cli", "up", "--json", "--data-dir", str(folder)]
        environment = {**os.environ, "WEIR_API__PORT": "0"}
        with (folder.parent / "up.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]
        token = (folder / "admin.token").read_text().strip()
        self.client = httpx2.Client(
            base_url=self.url, headers={"authorization": f"Bearer {token}"}, timeout=30
        )

    def find(self, word: str) -> psutil.Process | None:
        for process in descendants(self.process.pid):
            try:
                if word in " ".join(process.cmdline()):
                    return process
            except psutil.Error:
                continue
        return None

    def landed(self) -> int:
        answer = self.client.get("/api/v1/pipeline")
        status = answer.json().get("status") if answer.status_code == 200 else None
        return int(status["newest_ms"]) if status and answer.json()["running"] else 0

    def push(self, number: int) -> bool:
        answer = self.client.post(
            "/api/v1/queues/work/messages", json=number, headers={"idempotency-key": f"push-{number}"}
        )
        return answer.status_code in (201, 202)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[WholeUp]:
    tmp_path.chmod(0o755)
    running = WholeUp(tmp_path / "data")
    yield running
    running.client.close()
    running.process.terminate()
    running.process.wait(timeout=60)
    assert running.process.stdout is not None
    running.process.stdout.close()


def soon(found: Callable[[], object], what: str) -> None:
    wait_until(lambda: bool(_quiet(found)), timeout_s=180, what=what)


def _quiet(found: Callable[[], object]) -> object:
    try:
        return found()
    except httpx2.HTTPError:
        return None


@pytest.mark.fault
def test_every_process_of_up_comes_back_and_the_queues_go_on(up: WholeUp) -> None:
    assert up.client.put("/api/v1/queues/work", json={}).status_code == 200
    for word in KINDS.values():
        soon(lambda word=word: up.find(word), word)
    ended, accepted = threading.Event(), 0

    def push_all() -> None:
        nonlocal accepted
        while not ended.is_set():
            while not _quiet(partial(up.push, accepted)) and not ended.wait(0.05):
                pass
            accepted += 1
            ended.wait(0.05)

    pusher = threading.Thread(target=push_all)
    pusher.start()
    try:
        for _ in range(ROUNDS):
            for word in KINDS.values():
                soon(lambda word=word: up.find(word), f"{word} runs")
                victim = up.find(word)
                assert victim is not None
                kill9(victim.pid)
                before = accepted
                soon(lambda victim=victim: not victim.is_running(), f"{word} is gone")
                soon(lambda before=before: accepted > before + 5, f"pushes go on after {word}")
                assert up.process.poll() is None
        newest = up.landed()
        soon(lambda: up.landed() > newest, "events land")
    finally:
        ended.set()
        pusher.join()
