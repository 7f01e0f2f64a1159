"""What cannot work is refused with one line that says what to do, and exit status 2."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.disks import on_a_small_disk
from weir.embedded.java import find_java
from weir.errors import Misconfigured

WEIR = (sys.executable, "-m", "weir.cli")


def refusal(*arguments: str, **environment: str) -> str:
    """The one line that a command is refused with."""
    done = subprocess.run(
        [*WEIR, *arguments], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path / "data"


def test_an_unknown_setting() -> None:
    assert "did you mean `WEIR_REDIS_URL`?" in refusal("config", "show", WEIR_REDS_URL="redis://x")


def test_a_bad_value() -> None:
    assert "got `localhost:6379`" in refusal("doctor", WEIR_REDIS_URL="localhost:6379")


def test_a_busy_port(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = refusal("up", "--data-dir", str(folder), WEIR_EMBEDDED__POSTGRES_PORT=port)
    assert f"port {port} for postgres is in use" in line
    assert "WEIR_EMBEDDED__POSTGRES_PORT" in line


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "choose another" in refusal("up", "--data-dir", str(tmp_path / "file" / "data"))


def test_a_snapshot_without_an_append_only_file(folder: Path) -> None:
    (folder / "redis").mkdir(parents=True)
    (folder / "redis" / "dump.rdb").write_bytes(b"REDIS0009")
    assert "Redis would start empty" in refusal("up", "--data-dir", str(folder))


def test_a_damaged_append_only_file(folder: Path) -> None:
    (folder / "redis").mkdir(parents=True)
    entry = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n"
    (folder / "redis" / "appendonly.aof").write_bytes(entry * 10 + b"\x00junk\x00" + entry * 10)
    assert "--repair-redis" in refusal("up", "--data-dir", str(folder))


def test_an_unknown_command() -> None:
    done = subprocess.run([*WEIR, "frobnicate"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_an_unknown_bench() -> None:
    assert "there is no bench" in refusal("bench", "nothing")
    assert "there is no deed `nothing`; there are: idle" in refusal("bench", "neighbour", "--only", "nothing")
    assert "has no parts" in refusal("bench", "http", "--only", "nothing")


def test_nothing_runs_here(tmp_path: Path) -> None:
    assert "run `weir up`" in refusal("migrate", "--data-dir", str(tmp_path))


async def test_a_java_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = make_java(tmp_path, version="11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(java))
    with pytest.raises(Misconfigured, match=r"is Java 11\.0\.2, which is too old; install Java 17"):
        await find_java()


@pytest.mark.parametrize("command", [("demo",), ("pipeline", "run")])
def test_what_needs_spark_refuses_an_old_java(tmp_path: Path, command: tuple[str, ...]) -> None:
    java = make_java(tmp_path, version="1.8.0_392")
    line = refusal(*command, "--data-dir", str(tmp_path / "data"), JAVA_HOME=str(java))
    assert "too old; install Java 17" in line


async def test_a_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Misconfigured, match="Java was not found"):
        await find_java()


def make_java(folder: Path, *, version: str) -> Path:
    java = folder / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2019' >&2\n")
    java.chmod(0o755)
    return folder / "jdk"


@pytest.mark.parametrize("size", ["2m", "45m"])
def test_a_full_disk(tmp_path: Path, size: str) -> None:
    tmp_path.chmod(0o755)
    data = tmp_path / "disk" / "data"
    data.parent.mkdir()
    mounting = on_a_small_disk(data.parent, size=size)
    if not mounting:
        # Nobody may mount here: one file stands for the disk.
        (data / "redis").mkdir(parents=True)
        (data / "redis" / "redis.conf").symlink_to("/dev/full")
    done = subprocess.run(
        [*mounting, *WEIR, "up", "--data-dir", str(data)], capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "full" in done.stderr.splitlines()[-1]
    assert done.stderr.count("\n") == 1
