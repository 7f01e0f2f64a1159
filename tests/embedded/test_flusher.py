"""A fast Redis writes before it answers, and its file reaches the disk every second."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from redis import Redis

from support.servers import redis_server, start_server
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
