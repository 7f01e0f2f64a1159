"""A real Redis Cluster of child processes, for tests."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from support.servers import redis_program
from weir.embedded.ports import HOST, is_free
from weir.embedded.redis_binary import redis_binary

NODES, _SLOTS = 3, 16_384
_BUS_ABOVE = 10_000
# These ports, and the bus ports above them, are below the ports that the kernel gives to connections.
_PORTS = range(12_000, 22_000)
NODE_TIMEOUT_MS = 2_000
_START_S = 60.0


class RunningCluster:
    """Three primaries that share the slots; each can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ports = _cluster_ports()
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

    def begin_move(self, slot: int) -> tuple[int, int]:
        """Mark a slot as moving from its node to the next; return both. No key of it has moved."""
        source = self._node_of(slot)
        target = (source + 1) % NODES
        with self._client(source) as old, self._client(target) as new:
            new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", old.cluster("myid"))
            old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", new.cluster("myid"))
        return source, target

    def move_keys(self, slot: int, *, source: int, target: int, count: int) -> None:
        """Move some keys of a slot that is moving."""
        with self._client(source) as old:
            for key in old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, count):
                old.execute_command("MIGRATE", HOST, self.ports[target], key, 0, 5_000)

    def end_move(self, slot: int, *, source: int, target: int) -> None:
        """Move the rest of the keys, and let the slot belong to the other node."""
        self.move_keys(slot, source=source, target=target, count=100_000)
        with self._client(target) as client:
            owner = client.cluster("myid")
        for node in (target, source, 3 - source - target):
            with self._client(node) as client:
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", owner)

    def _node_of(self, slot: int) -> int:
        with self._client(0) as client:
            slots = client.execute_command("CLUSTER SLOTS")
        owners = (primary[1] for first, last, primary, *_ in slots if first <= slot <= last)
        return self.ports.index(next(owners))

    def _client(self, node: int) -> Redis:
        return Redis(host=HOST, port=self.ports[node])

    def stop(self) -> None:
        for node in range(NODES):
            self.kill(node)

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        folder = self._folder / str(port)
        folder.mkdir(parents=True, exist_ok=True)
        options = {
            "port": port,
            "bind": HOST,
            "dir": folder,
            "save": "",
            "appendonly": "yes",
            # With the default, a killed node loses the writes that it answered while an fsync ran.
            "appendfsync": "no",
            "cluster-enabled": "yes",
            "cluster-node-timeout": NODE_TIMEOUT_MS,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        with (folder / "redis.log").open("ab") as log:
            return subprocess.Popen([redis_binary(redis_program()).path, *words], stdout=log)

    def _join(self) -> None:
        for number, port in enumerate(self.ports):
            with Redis(host=HOST, port=port) as client:
                self._wait(client.ping)
                mine = range(number * _SLOTS // NODES, (number + 1) * _SLOTS // NODES)
                client.execute_command("CLUSTER", "ADDSLOTS", *mine)
        self._wait_until_whole()

    def _wait_until_whole(self) -> None:
        for port in self.ports:
            with Redis(host=HOST, port=port) as client:
                self._wait(partial(self._is_whole, client))

    def _is_whole(self, node: Any) -> bool:
        info = node.cluster("info")
        known = int(info["cluster_known_nodes"])
        if known < NODES:
            # Repeated if need be: a node gives up a meeting that takes longer than the node timeout.
            for port in self.ports:
                node.execute_command("CLUSTER", "MEET", HOST, port)
        return info["cluster_state"] == "ok" and known == NODES

    def _wait(self, ready: Callable[[], object]) -> None:
        give_up = time.monotonic() + _START_S
        while True:
            try:
                if ready():
                    return
            except RedisError:
                pass
            if time.monotonic() > give_up:
                raise TimeoutError(f"the cluster did not come up:\n{self._logs()}")
            time.sleep(0.05)

    def _logs(self) -> str:
        """The last lines that each node wrote."""
        logs = ((port, self._folder / str(port) / "redis.log") for port in self.ports)
        return "\n".join(f"{port}: {log.read_text()[-2_000:]}" for port, log in logs)


def _cluster_ports() -> list[int]:
    """Ports that are free, with their bus ports."""
    candidates = random.sample(_PORTS, len(_PORTS))
    free = (port for port in candidates if is_free(port) and is_free(port + _BUS_ABOVE))
    return [next(free) for _ in range(NODES)]
