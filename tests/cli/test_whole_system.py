"""`weir up` runs the whole embedded system, and other commands find it in its folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support.terminal import lines_on_terminal

WEIR = (sys.executable, "-m", "weir.cli")


class RunningUp:
    """A `weir up` without the pipeline, and commands over its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = {**os.environ, "WEIR_API__PORT": "0"}
        command = [*WEIR, "up", "--without", "pipeline", "--json", "--data-dir", str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        self._first_line = self.process.stdout.readline()

    @property
    def url(self) -> str:
        return str(json.loads(self._first_line)["url"])

    def weir(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*WEIR, *words, "--data-dir", str(self.folder)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(timeout=30)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningUp]:
    folder = tmp_path_factory.mktemp("up")
    folder.parent.chmod(0o755)
    running = RunningUp(folder)
    yield running
    assert running.stop() == 0
    assert not (folder / "api.json").exists()


def test_the_api_answers_and_its_tokens_are_private(system: RunningUp) -> None:
    assert httpx2.get(f"{system.url}/readyz").status_code == 200
    for name, role in (("admin.token", "admin"), ("operator.token", "operator")):
        file = system.folder / name
        assert file.stat().st_mode & 0o077 == 0
        headers = {"authorization": f"Bearer {file.read_text().strip()}"}
        assert httpx2.get(f"{system.url}/api/v1/me", headers=headers).json()["role"] == role


def test_tokens_are_made_listed_rotated_and_deleted_through_the_api(system: RunningUp) -> None:
    made = json.loads(system.weir("token", "create", "checkout", "--expires", "90d", "--json").stdout)
    assert (made["organization"], made["project"], made["environment"]) == ("default",) * 3
    rotated = json.loads(system.weir("token", "rotate", made["id"], "--grace", "1h", "--json").stdout)
    assert rotated["replaces"] == made["id"]
    assert system.weir("token", "delete", rotated["id"]).returncode == 0
    states = {one["id"]: one for one in json.loads(system.weir("token", "list", "--json").stdout)}
    assert states[rotated["id"]]["revoked_at_ms"] is not None
    log = httpx2.get(f"{system.url}/api/v1/audit-log", headers=_operator(system)).json()["items"]
    assert {"token.create", "token.rotate", "token.revoke"} <= {entry["action"] for entry in log}


def test_a_command_with_a_tenants_token_is_held_to_its_scope(system: RunningUp) -> None:
    made = json.loads(system.weir("token", "create", "r", "-o", "acme", "--role", "read", "--json").stdout)
    command = [*WEIR, "token", "list"]
    environment = {**os.environ, "WEIR_URL": system.url, "WEIR_TOKEN": made["token"]}
    refused = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert refused.returncode == 1
    assert "`admin` is needed" in refused.stderr


def test_bootstrap_makes_an_operator_straight_in_the_store(system: RunningUp) -> None:
    text = system.weir("token", "bootstrap").stdout.strip()
    headers = {"authorization": f"Bearer {text}"}
    assert httpx2.get(f"{system.url}/api/v1/me", headers=headers).json()["role"] == "operator"


def test_ids_are_whole_on_a_terminal_of_80_columns(system: RunningUp) -> None:
    assert system.weir("queue", "create", "narrow").returncode == 0
    task = json.loads(
        system.weir("dlq", "redrive", "--queue", "narrow", "--dry-run", "--detach", "--json").stdout
    )
    silence = system.weir("alert-silence", "create", "30m", "--comment", "a long comment " * 9).stdout.strip()
    listed = {("dlq", "task", "list"): task["id"], ("alert-silence", "list"): silence}
    for words, identity in listed.items():
        shown = lines_on_terminal([*WEIR, *words, "--data-dir", str(system.folder)], columns=80)
        assert [identity in line for line in shown].count(True) == 1, shown
        assert max(map(len, shown)) <= 80


def test_without_an_api_a_command_says_what_to_start(tmp_path: Path) -> None:
    for environment, expected in (({}, "weir up"), ({"WEIR_URL": "http://127.0.0.1:9"}, "WEIR_TOKEN")):
        done = subprocess.run(
            [*WEIR, "token", "list", "--data-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
        )
        assert (done.returncode, expected in done.stderr, "Traceback" in done.stderr) == (2, True, False)


@pytest.mark.parametrize(
    ("words", "answer"),
    [(("tokn",), "did you mean `token`"), (("token", "revoke", "x"), "is now `weir token delete`")],
)
def test_a_mistyped_or_old_spelling_is_answered_with_the_right_one(
    words: tuple[str, ...], answer: str
) -> None:
    done = subprocess.run([*WEIR, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert answer in done.stderr


def _operator(system: RunningUp) -> dict[str, str]:
    return {"authorization": f"Bearer {(system.folder / 'operator.token').read_text().strip()}"}
