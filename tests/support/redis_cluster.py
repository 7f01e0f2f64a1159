"""A real Redis Cluster of child processes, for tests."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from support.servers import redis_program
from weir.embedded.ports import HOST, free_port
from weir.embedded.redis_binary import redis_binary

NODES, _SLOTS = 3, 16_384
_BUS_ABOVE = 10_000
_START_S = 30.0


class RunningCluster:
    """Three primaries that share the slots; each can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ports = [_cluster_port() for _ in range(NODES)]
        self._processes = [self._spawn(port) for port in self.ports]
        try:
            self._join()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"redis+cluster://{HOST}:{self.ports[0]}/0"

    def kill(self, node: int) -> None:
        self._processes[node].kill()
        self._processes[node].wait()

    def start(self, node: int) -> None:
        """Start a killed node again and wait until the cluster is whole."""
        self._processes[node] = self._spawn(self.ports[node])
        self._wait_until_whole()

    def stop(self) -> None:
        for node in range(NODES):
            self.kill(node)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        folder = self._folder / str(port)
        folder.mkdir(parents=True, exist_ok=True)
        options = {
            "port": port,
            "bind": HOST,
            "dir": folder,
            "save": "",
            "appendonly": "yes",
            # With the default, a killed node loses what it answered while an fsync ran.
            "appendfsync": "no",
            "cluster-enabled": "yes",
            "cluster-node-timeout": 2_000,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return subprocess.Popen([redis_binary(redis_program()).path, *words], stdout=subprocess.DEVNULL)

    def _join(self) -> None:
        for number, port in enumerate(self.ports):
            with Redis(host=HOST, port=port) as client:
                _wait(client.ping)
                mine = range(number * _SLOTS // NODES, (number + 1) * _SLOTS // NODES)
                client.execute_command("CLUSTER", "ADDSLOTS", *mine)
                client.execute_command("CLUSTER", "MEET", HOST, self.ports[0])
        self._wait_until_whole()

    def _wait_until_whole(self) -> None:
        for port in self.ports:
            with Redis(host=HOST, port=port) as client:
                _wait(partial(_is_whole, client))


def _is_whole(node: Any) -> bool:
    info = node.cluster("info")
    return bool(info["cluster_state"] == "ok" and info["cluster_known_nodes"] == str(NODES))


def _cluster_port() -> int:
    """A port whose bus port, above it, is a port too."""
    while (port := free_port()) > 65_535 - _BUS_ABOVE:
        pass
    return port


def _wait(ready: Callable[[], object]) -> None:
    give_up = time.monotonic() + _START_S
    while True:
        try:
            if ready():
                return
        except RedisError:
            pass
        if time.monotonic() > give_up:
            raise TimeoutError("the cluster did not come up")
        time.sleep(0.05)
