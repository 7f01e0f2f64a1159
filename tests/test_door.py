"""The door: sets up once, says what it does, picks up after an interruption. Python and uv are stand-ins."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import weir
from support.waiting import wait_until

DOOR = Path(weir.__file__).parents[2] / "weir"
TOOLS = (
    *("sh", "cat", "cksum", "cp", "dirname", "find", "head", "id", "java", "kill"),
    *("chmod", "mkdir", "readlink", "rm", "sed", "sleep"),
)

PYTHON = r"""#!/bin/sh
case "$*" in
  "-c import sys; sys.exit"*) exit 0 ;;
  "-c import sys; print"*) echo "$0" ;;
  "-m venv "*)
    mkdir -p "$3/bin" "$3/lib" && cp "$0" "$3/bin/python" && cp "$STAND_IN_UV" "$3/bin/uv"
    echo venv >>"$LOG" ;;
  "-m pip "*) echo pip >>"$LOG" ;;
  "-c import sysconfig"*) echo "$(dirname "$0")/../lib" ;;
  "-m weir.cli"*) shift 2; echo "ran $*" ;;
esac
"""
UV = r"""#!/bin/sh
echo "uv $1 $2" >>"$LOG"
[ ! -f "$FAIL" ] || exit 1
[ ! -f "$HANG" ] || { : >"$HANG.reached"; sleep 60; }
"""


class House:
    """A repository with nothing in it but the door and a lock."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a house"
        self.root.mkdir()
        shutil.copy(DOOR, self.root / "weir")
        (self.root / "requirements.lock").write_text("one==1\n")
        (self.root / "requirements-uv.lock").write_text("uv==1\n")
        self.tools = folder / "tools"
        self.tools.mkdir()
        for tool in TOOLS:
            if found := shutil.which(tool):
                (self.tools / tool).symlink_to(found)
        self.log, self.fail, self.hang = folder / "log", folder / "fail", folder / "hang"
        self.script(self.tools / "python3.11", PYTHON)
        self.script(folder / "uv", UV)
        self.environment = {
            "PATH": str(self.tools),
            "HOME": str(folder / "no home"),
            "LOG": str(self.log),
            "FAIL": str(self.fail),
            "HANG": str(self.hang),
            "STAND_IN_UV": str(folder / "uv"),
        }

    def script(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.root / "weir"), *arguments],
            env=self.environment,
            cwd="/",
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err

    def steps(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Let children hear Ctrl-C, even if whoever started the tests does not: what is ignored is inherited."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_the_first_use_sets_up_and_the_next_ones_do_not(house: House) -> None:
    status, out, err = house.run("demo", "--for", "3")
    assert (status, out) == (0, "ran demo --for 3\n")
    assert "1/4" in err
    assert house.steps() == ["venv", "pip", "uv pip install"]
    assert house.run("two words") == (0, "ran two words\n", "")
    assert len(house.steps()) == 3


def test_it_works_through_a_link(house: House, tmp_path: Path) -> None:
    house.run()
    (tmp_path / "link").symlink_to(house.root / "weir")
    done = subprocess.run([tmp_path / "link", "up"], env=house.environment, capture_output=True, text=True)
    assert done.stdout == "ran up\n"


def test_a_changed_lock_is_installed_into_the_same_environment(house: House) -> None:
    house.run()
    (house.root / "requirements.lock").write_text("one==2\n")
    assert house.run("up")[:2] == (0, "ran up\n")
    assert house.steps() == ["venv", "pip", "uv pip install", "uv pip install"]


def test_a_failed_set_up_says_what_to_do_and_starts_over(house: House) -> None:
    house.fail.write_text("")
    status, out, err = house.run("up")
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("weir: the packages could not be installed")
    house.fail.unlink()
    assert house.run("up")[:2] == (0, "ran up\n")
    assert house.steps() == ["venv", "pip", "uv pip install"] * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_set_up_is_done_again(house: House, number: int) -> None:
    house.hang.write_text("")
    process = house.start("up")
    wait_until(Path(f"{house.hang}.reached").exists, what="the installation")
    wait_until(lambda: ended_by(process, number), what="the end of the interrupted set-up")
    process.communicate()
    house.hang.unlink()
    assert house.run("up")[:2] == (0, "ran up\n")
    assert house.steps() == ["venv", "pip", "uv pip install"] * 2


def ended_by(process: subprocess.Popen[str], number: int) -> bool:
    """Interrupt it, again if it did not hear the first time: a shell may miss one while it starts a child."""
    if process.poll() is None:
        os.killpg(process.pid, number)
    return process.poll() is not None


def test_two_first_uses_at_once_set_up_once(house: House) -> None:
    processes = [house.start("up") for _ in range(3)]
    outputs = [process.communicate(timeout=30)[0] for process in processes]
    assert outputs == ["ran up\n"] * 3
    assert house.steps() == ["venv", "pip", "uv pip install"]


def test_no_python_is_one_clear_line(house: House) -> None:
    (house.tools / "python3.11").unlink()
    status, _, err = house.run("up")
    assert status == 2
    assert err == "weir: Python 3.11 or later was not found; install it, or set WEIR_PYTHON to its path\n"


APT = """#!/bin/sh
echo "apt-get $*" >>"$LOG"
printf '#!/bin/sh\\necho '\\''openjdk version "17.0.1"'\\'' >&2\\n' >"$(dirname "$0")/java"
chmod 755 "$(dirname "$0")/java"
"""


def as_account(house: House, uid: int, *, java: str | None) -> None:
    """Who runs the door, and which Java it finds."""
    for name in ("id", "java"):
        (house.tools / name).unlink(missing_ok=True)
    house.script(house.tools / "id", f"#!/bin/sh\necho {uid}\n")
    house.script(house.tools / "apt-get", APT)
    if java is not None:
        house.script(house.tools / "java", f"#!/bin/sh\necho 'openjdk version \"{java}\"' >&2\n")


@pytest.mark.parametrize("java", [None, "1.8.0_392", "11.0.2"])
def test_root_on_debian_gets_a_java_that_will_do(house: House, java: str | None) -> None:
    as_account(house, 0, java=java)
    assert house.run("demo")[:2] == (0, "ran demo\n")
    assert "apt-get install -y -q --no-install-recommends openjdk-17-jre-headless" in house.steps()


@pytest.mark.parametrize("java", [None, "1.8.0_392"])
def test_others_are_told_in_one_line_which_java_to_install(house: House, java: str | None) -> None:
    as_account(house, 1000, java=java)
    status, out, err = house.run("up")
    assert (status, out) == (0, "ran up\n")
    assert [line for line in err.splitlines() if "apt install openjdk-17-jre-headless" in line]
    assert not [step for step in house.steps() if step.startswith("apt-get")]


def test_a_java_that_will_do_is_left_alone(house: House) -> None:
    as_account(house, 0, java="21.0.4")
    _, _, err = house.run("up")
    assert "was not found" not in err
    assert not [step for step in house.steps() if step.startswith("apt-get")]
