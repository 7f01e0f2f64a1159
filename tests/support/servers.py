"""Real servers for tests, from synchronous code: started when first asked for, stopped at the end."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from weir.embedded.append_only import SINGLE, SPLIT
from weir.embedded.child import Child
from weir.embedded.clickhouse import ClickHouseServer
from weir.embedded.ports import free_port
from weir.embedded.postgres import PostgresServer, Tuning
from weir.embedded.redis import RedisServer
from weir.embedded.redis_binary import SETTING
from weir.embedded.server import EmbeddedServer
from weir.embedded.supervised import PortTaken, Supervised

_PORT_TRIES = 3
_MEMORY = Path("/dev/shm")
# The servers of a test process take 160 MB, and so does a data folder of `weir up`.
_ROOM_BYTES = 1 << 30


def memory_folder() -> Path | None:
    """A folder whose files are in memory, if there is room; None for the usual temporary folder.

    Many tests have a database of their own, of 540 files. Making one takes 12 ms in memory, and 300 ms on a
    disk.
    """
    try:
        about = os.statvfs(_MEMORY)
    except OSError:
        return None
    free_bytes = about.f_bavail * about.f_frsize
    return _MEMORY if os.access(_MEMORY, os.W_OK) and free_bytes >= _ROOM_BYTES else None


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder for data of servers, which is removed after the block."""
    with tempfile.TemporaryDirectory(
        prefix="weir-test-", dir=memory_folder(), ignore_cleanup_errors=True
    ) as name:
        # PostgreSQL may run as another account and has to pass through.
        Path(name).chmod(0o755)
        yield Path(name)


def redis_program() -> Path | None:
    """The Redis that `--redis-server` chose for this run; None is the wheel's."""
    chosen = os.environ.get(SETTING)
    return Path(chosen) if chosen else None


def redis_server(folder: Path, *, port: int, password: str = "p", durable: bool = False) -> RedisServer:
    """A server of the Redis that this run chose."""
    return RedisServer(folder, port=port, password=password, durable=durable, program=redis_program())


def last_append_only(folder: Path) -> Path:
    """The file to which the Redis of this folder appends its writes."""
    increments = sorted((folder / SPLIT).glob("*.incr.aof"))
    return increments[-1] if increments else folder / SINGLE


class TestServers:
    """One Redis, one PostgreSQL and one ClickHouse in a folder of their own, each started lazily."""

    __test__ = False

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="weir-test-", dir=memory_folder()))
        # PostgreSQL may run as another account and has to pass through.
        self.folder.chmod(0o711)
        self._password = secrets.token_urlsafe(16)
        self._running: list[RunningServer] = []

    @cached_property
    def redis(self) -> RunningServer:
        return self._start(
            lambda port: redis_server(self.folder / "redis", port=port, password=self._password)
        )

    @cached_property
    def postgres(self) -> RunningServer:
        tuning = Tuning(fsync=False, shared_buffers="64MB", max_connections=300)
        return self._start(
            lambda port: PostgresServer(
                self.folder / "postgres", port=port, password=self._password, tuning=tuning
            )
        )

    @cached_property
    def clickhouse(self) -> RunningServer:
        return self._start(
            lambda port: ClickHouseServer(self.folder / "clickhouse", port=port, password=self._password)
        )

    def stop(self) -> None:
        """Stop the servers that were started, and remove the folder."""
        for server in reversed(self._running):
            server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, make: Callable[[int], EmbeddedServer]) -> RunningServer:
        server = start_server(make, log_folder=self.folder)
        self._running.append(server)
        return server


class RunningServer:
    """A server under a test's control: it can be stopped, killed and started again on the same port."""

    def __init__(self, server: EmbeddedServer, *, log_folder: Path) -> None:
        self.server = server
        self._supervised = Supervised(server, log=log_folder / f"{server.name}.log", report=lambda _: None)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def pid(self) -> int:
        pid = self._supervised.pid
        if pid is None:
            raise RuntimeError(f"{self.server.name} is not running")
        return pid

    @property
    def child(self) -> Child | None:
        return self._supervised.child

    def start(self) -> None:
        asyncio.run(self._supervised.start())

    def stop(self) -> None:
        asyncio.run(self._supervised.stop())

    def kill(self) -> None:
        """End it at once, as a crash would."""
        asyncio.run(self._supervised.kill())


def start_server(make: Callable[[int], EmbeddedServer], *, log_folder: Path) -> RunningServer:
    """Start a server on a free port; another process may take the port first, so try a few."""
    for attempt in range(_PORT_TRIES):
        running = RunningServer(make(free_port()), log_folder=log_folder)
        try:
            running.start()
        except PortTaken:
            if attempt == _PORT_TRIES - 1:
                raise
        else:
            return running
    raise AssertionError("unreachable")
