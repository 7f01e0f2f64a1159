"""`weir up` as a process: it owns its directory, and leaves nothing behind however it ends."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import psutil
import pytest
import redis

from support.processes import is_alive, kill9
from support.waiting import wait_until
from weir.embedded.datadir import DataDir

WEIR = (sys.executable, "-m", "weir.cli")


class Up:
    """A running `weir up`."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.process = subprocess.Popen(
            [*WEIR, "up", "--only", "servers", "--json", "--data-dir", str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"`weir up` ended with {self.process.wait()}: {self.process.communicate()[1]}"
        self.told = line
        self.urls: dict[str, Any] = {**json.loads(line), **json.loads((folder / "run.json").read_text())}
        self.children = [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=20)

    def complaints(self) -> list[str]:
        """What it wrote to standard error, without the lines about a start that takes long."""
        assert self.process.stderr is not None
        lines = self.process.stderr.read().splitlines()
        return [line for line in lines if not re.fullmatch(r"weir: starting the servers … \d+ s", line)]

    def close(self) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGTERM)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path / "data dir"


@pytest.fixture
def up(folder: Path) -> Iterator[Up]:
    up = Up(folder)
    yield up
    up.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One that no test ends."""
    folder = tmp_path_factory.mktemp("shared")
    folder.parent.chmod(0o755)
    up = Up(folder)
    yield up
    up.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_with_all_its_children(up: Up, number: int) -> None:
    assert len(up.children) >= 3
    assert up.end(number) == 0
    assert [pid for pid in up.children if is_alive(pid)] == []
    assert up.complaints() == []


def test_its_children_end_with_it_even_when_it_is_killed(up: Up, folder: Path) -> None:
    with redis.Redis.from_url(up.urls["redis"]) as client:
        client.set("kept", "yes")
    kill9(up.process.pid)
    # Orphans may still be writing their data out; the next one waits for them.
    again = Up(folder)
    try:
        assert [pid for pid in up.children if is_alive(pid)] == []
        with redis.Redis.from_url(again.urls["redis"]) as client:
            assert client.get("kept") == b"yes"
        assert again.urls == up.urls
    finally:
        again.close()


def test_a_second_one_on_the_same_directory_is_refused_in_one_line(shared: Up) -> None:
    second = subprocess.run(
        [*WEIR, "up", "--data-dir", shared.urls["data_dir"]], capture_output=True, text=True
    )
    assert second.returncode == 2
    assert second.stderr.count("\n") == 1
    assert f"in use by process {shared.process.pid}" in second.stderr
    with redis.Redis.from_url(shared.urls["redis"]) as client:
        assert client.ping()


def test_other_commands_find_the_servers_in_the_directory(shared: Up) -> None:
    arguments = ["migrate", "--json", "--data-dir", shared.urls["data_dir"]]
    done = subprocess.run([*WEIR, *arguments], capture_output=True, text=True, check=True)
    assert "0001_schema" in json.loads(done.stdout)["postgres"]


def test_its_files_are_private(shared: Up) -> None:
    for name in ("secrets.json", "run.json", "redis", "postgres", "clickhouse", "logs", "pipeline"):
        assert (Path(shared.urls["data_dir"]) / name).stat().st_mode & 0o077 == 0


def test_it_prints_no_password(shared: Up) -> None:
    secret = json.loads((Path(shared.urls["data_dir"]) / "secrets.json").read_text())["password"]
    assert secret in shared.urls["redis"]
    assert secret not in shared.told


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    directory = DataDir(tmp_path)
    asyncio.run(directory.open())
    directory.close()
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


def test_a_dead_owner_that_nobody_has_reaped_is_no_owner(tmp_path: Path) -> None:
    """Its children hold the lock until they have written their data out; the next one waits for them."""
    with subprocess.Popen(["true"]) as owner, (tmp_path / "lock").open("a+") as lock:
        wait_until(lambda: not is_alive(owner.pid), what="the owner's death")
        lock.write(f"{owner.pid}\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        asyncio.run(opened_while(DataDir(tmp_path), lock))
        assert lock.closed


async def opened_while(directory: DataDir, lock: IO[str]) -> None:
    """Open a directory whose lock is given back a little later."""
    asyncio.get_running_loop().call_later(0.3, lock.close)
    await directory.open()
    directory.close()


def test_nothing_opens_without_the_password(shared: Up) -> None:
    port = urlsplit(shared.urls["redis"]).port
    with redis.Redis(port=port) as client, pytest.raises(redis.exceptions.AuthenticationError):
        client.ping()


def test_folders_that_an_older_version_left_open_are_closed(tmp_path: Path) -> None:
    for name in ("logs", "pipeline"):
        (tmp_path / name).mkdir(mode=0o755)
        assert DataDir(tmp_path).folder(name).stat().st_mode & 0o777 == 0o700


def test_serve_over_a_fresh_folder_brings_its_stores_up_to_date(up: Up, folder: Path) -> None:
    command = [*WEIR, "serve", "--port", "0", "--data-dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as serving:
        assert serving.stdout is not None
        assert serving.stdout.readline().startswith("serving http://")
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(timeout=30) == 0
