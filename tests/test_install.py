"""The wheel of a clean clone, installed into a bare environment far from the repository, does everything.

Seven minutes: it builds the dashboard twice, installs every extra twice, starts Spark four times, and follows
the tutorial with the wheel and in a fresh clone. Packages come from the cache of uv, or else from the
registry that it is configured for.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from dev import ROOT
from docs.conftest import free_ports
from docs.test_tutorial import LESSONS, MAX_FIRST_MESSAGE_S, TUTORIAL
from support.processes import processes_using
from support.reader import PORTS, Reader
from support.waiting import wait_until

pytestmark = pytest.mark.slow
UV = str(Path(sys.executable).with_name("uv"))
SPEC = """app Greetings {
  queue greetings {
    message_type { name: string }
    map_to: command Greeting.Send { name: name }
  }
}
"""
HANDLERS = """from weir.worker import Commands

app = Commands()


@app.command("Greeting.Send")
async def greet(name: str) -> str:
    return f"hello {name}"
"""


SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
SET_UP_S = 600
"""A fresh clone installs every package and builds its pages."""


def kept_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("JAVA_HOME", "LANG", "USER") if name in os.environ}


class Installed:
    """A virtual environment with the wheel in it, and a folder to work in."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        run(UV, "venv", "-q", "--python", sys.executable, str(folder / "venv"), cwd=folder)
        locked = ["--constraint", str(ROOT / "requirements.lock")]
        run(
            UV,
            "pip",
            "install",
            "-q",
            "--python",
            str(self.bin / "python"),
            f"{wheel}[all]",
            *locked,
            cwd=folder,
        )

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join((str(self.bin), *SYSTEM_PATH))
        return {**kept_environment(), "PATH": path, "HOME": str(self.folder), "WEIR_API__PORT": "0"}

    def weir(self, *words: str, timeout_s: float = 60) -> str:
        return run(str(self.bin / "weir"), *words, cwd=self.folder, env=self.environment, timeout_s=timeout_s)

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command in the background; SIGINT ends it without an error."""
        process = subprocess.Popen(
            [str(self.bin / "weir"), *words], cwd=self.folder, env=self.environment, text=True,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            yield process
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def run(*command: str, cwd: Path, env: dict[str, str] | None = None, timeout_s: float = 300) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"{command}: {done.stdout[-2_000:]}{done.stderr[-4_000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    # PostgreSQL runs as another account and has to pass through.
    for one in (folder, folder.parent):
        one.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    """Made as a user would make it: the source distribution of a clean clone, and the wheel from that."""
    run("git", "clone", "-q", "--no-hardlinks", str(ROOT), str(folder / "clone"), cwd=folder)
    run(UV, "build", "-q", "--out-dir", str(folder / "dist"), str(folder / "clone"), cwd=folder)
    (found,) = (folder / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(folder: Path, wheel: Path) -> Installed:
    return Installed(folder, wheel)


def test_the_wheel_holds_the_pages_and_none_of_their_sources(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"weir"}
    assert {"weir/py.typed", "weir/dashboard/static/index.html"} <= set(names)
    assert any(re.fullmatch(r"weir/dashboard/static/assets/index-[\w-]+\.js", name) for name in names)
    unwanted = [name for name in names if "/web/" in name or name.endswith((".ts", ".tsx", ".stamp", ".pyc"))]
    assert unwanted == []


def test_the_command_is_there_and_is_not_a_checkouts(installed: Installed) -> None:
    assert installed.weir("--version").startswith("weir ")
    listed = installed.weir("--help")
    assert "  up " in listed
    assert "  bench " not in listed


def test_up_serves_api_and_pages_and_its_charts_fill(installed: Installed) -> None:
    data = str(installed.folder / "data")
    (installed.folder / "handlers.py").write_text(HANDLERS)
    (installed.folder / "greetings.weir").write_text(SPEC)
    with installed.running("up", "--json", "--data-dir", data) as up:
        assert up.stdout is not None
        url = json.loads(up.stdout.readline())["url"]
        assert httpx2.get(f"{url}/readyz").status_code == 200
        page = httpx2.get(f"{url}/").text
        (script,) = re.findall(r'src="\./(assets/[\w.-]+\.js)"', page)
        assert httpx2.get(f"{url}/{script}").status_code == 200
        installed.weir("spec", "apply", "greetings.weir", "--data-dir", data)
        installed.weir("queue", "push", "greetings", '{"name": "Ada"}', "--data-dir", data)
        with installed.running("worker", "--app", "handlers:app", "--data-dir", data):
            wait_until(lambda: acked(installed, data) == 1, timeout_s=30, what="the end of the work")
        # It waits until every event has landed, and fails if a count differs.
        audit = installed.weir(
            "pipeline", "audit", "--wait-s", "90", "--json", "--data-dir", data, timeout_s=120
        )
        assert json.loads(audit)["drift"] == 0
    assert processes_using(str(installed.folder / "data")) == []


def test_the_tutorial_works_with_the_wheel(
    installed: Installed, record_property: pytest.RecordProperty
) -> None:
    lessons = installed.folder / "lessons"
    lessons.mkdir()
    took_s = follow_lessons(lessons, installed.environment)
    record_property("first_message_s", round(took_s, 1))
    print(f"with the wheel, from `weir up` to the first message that was done: {took_s:.1f} s")
    assert took_s < MAX_FIRST_MESSAGE_S


def test_the_tutorial_works_in_a_fresh_clone(folder: Path, record_property: pytest.RecordProperty) -> None:
    """As its first lesson says: with `./weir` for `weir` and the Python of the environment that it makes."""
    clone = folder / "fresh"
    run("git", "clone", "-q", "--no-hardlinks", str(ROOT), str(clone), cwd=folder)
    run(str(clone / "weir"), "--version", cwd=clone, timeout_s=SET_UP_S)
    path = os.pathsep.join((str(clone), str(clone / ".venv" / "bin"), *SYSTEM_PATH))
    took_s = follow_lessons(clone, {**kept_environment(), "PATH": path, "HOME": str(folder)})
    record_property("first_message_s", round(took_s, 1))
    print(f"in a fresh clone, from `./weir up` to the first message that was done: {took_s:.1f} s")
    assert took_s < MAX_FIRST_MESSAGE_S


def follow_lessons(folder: Path, environment: dict[str, str]) -> float:
    """Follow the whole tutorial there; the seconds until its first message was done."""
    ports = free_ports(len(PORTS))
    reader = Reader(folder=folder, ports=ports, environment={**environment, "WEIR_API__PORT": str(ports[0])})
    started_s = time.monotonic()
    try:
        for lesson in LESSONS:
            reader.follow(TUTORIAL / f"{lesson}.md")
    finally:
        reader.close()
    assert processes_using(str(folder)) == []
    return reader.first_match_s - started_s


def test_the_demo_runs_and_leaves_no_process(installed: Installed) -> None:
    data = str(installed.folder / "demo")
    summary = json.loads(
        installed.weir("demo", "--for", "20", "--json", "--data-dir", data, timeout_s=240).splitlines()[-1]
    )
    assert summary["ok"]
    assert summary["events_landed"] > 0
    assert processes_using(data) == []


def acked(installed: Installed, data: str) -> int:
    shown = json.loads(installed.weir("queue", "show", "greetings", "--json", "--data-dir", data))
    return int(shown["totals"]["acked"])
