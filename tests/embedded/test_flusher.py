"""A fast Redis writes before it answers, and its file reaches the disk every second."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis

from support.servers import redis_server, start_server
from support.waiting import wait_until
from weir.embedded.flusher import Flusher


def test_the_files_of_old_and_new_servers_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "appendonly.aof", tmp_path / "appendonlydir" / "appendonly.aof.1.incr.aof"]
    files[1].parent.mkdir()
    for file in files:
        file.touch()
    flushed: set[Path] = set()
    both = threading.Event()

    def record(handle: int) -> None:
        # Servers of other tests in this process are looked after as well.
        flushed.update({Path(f"/proc/self/fd/{handle}").readlink()} & set(files))
        if flushed == set(files):
            both.set()

    monkeypatch.setattr(os, "fsync", record)
    flusher = Flusher(tmp_path, period_s=0.01)
    flusher.start()
    flusher.start()
    assert both.wait(5)


@pytest.mark.parametrize(("durable", "policy"), [(False, "no"), (True, "always")])
def test_redis_never_answers_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool, policy: str
) -> None:
    flushed, folder = threading.Event(), str(tmp_path)

    def record(handle: int) -> None:
        if str(Path(f"/proc/self/fd/{handle}").readlink()).startswith(folder):
            flushed.set()

    monkeypatch.setattr(os, "fsync", record)
    server = start_server(
        lambda port: redis_server(tmp_path / "redis", port=port, durable=durable),
        log_folder=tmp_path,
    )
    with Redis.from_url(server.url, decode_responses=True) as client:
        assert client.config_get("appendfsync") == {"appendfsync": policy}
    server.stop()
    assert durable or flushed.wait(5)


def test_a_file_that_a_rewrite_began_is_put_into_append_mode(tmp_path: Path) -> None:
    server = start_server(lambda port: redis_server(tmp_path / "redis", port=port), log_folder=tmp_path)
    with Redis.from_url(server.url, decode_responses=True) as client:
        pid = client.info("server")["process_id"]
        before = modes(pid)
        client.bgrewriteaof()
        wait_until(lambda: modes(pid).keys() != before.keys(), what="a new file")
        wait_until(lambda: modes(pid) and all(modes(pid).values()), what="append mode")
    server.stop()


def modes(pid: int) -> dict[str, bool]:
    """The open append-only files of a process, and whether each is in append mode."""
    found = {}
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            if (name := str(handle.readlink())).endswith(".aof"):
                lines = Path(f"/proc/{pid}/fdinfo/{handle.name}").read_text().split()
                found[name] = bool(int(lines[lines.index("flags:") + 1], 8) & os.O_APPEND)
    return found
