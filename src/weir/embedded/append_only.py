"""Redis' append-only files in a folder: whether a server may open them, and how they are repaired.

Up to Redis 6.2 this is one file, `appendonly.aof`. Since Redis 7 it is a folder, `appendonlydir`, with a
base, increments and a manifest. A newer server takes the one file over as its base.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from weir.embedded.aof_entries import sound_bytes
from weir.embedded.redis_binary import SETTING, RedisBinary
from weir.errors import Misconfigured

SINGLE, SPLIT = "appendonly.aof", "appendonlydir"
_SPLIT_SINCE = (7, 0, 0)
_FORMAT = re.compile(rb"(REDIS|VALKEY)(\d{3,4})")
# The first fields of a snapshot name the server that wrote it; a length stands before the version.
_WRITER = re.compile(rb"(redis|valkey)-ver[\x00-\x3f]([0-9.]+)")
_HEAD_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendOnlySnapshot:
    """The snapshot that an append-only file begins with: its format, and who wrote it."""

    family: str
    number: int
    writer: str

    def readable_by(self, server: RedisBinary) -> bool:
        """Seen with Redis 6.2, 7.0 and 8.0 and Valkey 8.1 and 9.1, each over the files of each.

        A server reads its own format and older ones. Redis and Valkey share the formats up to 11; from then
        on each has its own.
        """
        if self.family == "VALKEY":
            return server.name == "Valkey" and server.version >= (9, 0, 0)
        if self.number > 11:
            return server.name == "Redis" and server.version >= (7, 4, 0)
        return self.number < 11 or server.name == "Valkey" or server.version >= (7, 2, 0)


def check_append_only(folder: Path, server: RedisBinary) -> None:
    """Refuse a folder that this server would open as if it were empty or damaged."""
    if (folder / SPLIT).is_dir() and server.version < _SPLIT_SINCE:
        raise Misconfigured(_foreign(folder, server, writer="Redis 7 or later"))
    snapshot = read_snapshot(folder)
    if snapshot is not None and not snapshot.readable_by(server):
        raise Misconfigured(_foreign(folder, server, writer=snapshot.writer))
    if (folder / "dump.rdb").is_file() and not _files(folder):
        raise Misconfigured(
            f"`{folder}` holds a snapshot (`dump.rdb`) but no append-only file; Redis would start empty. "
            "Start it once without `appendonly`, run `CONFIG SET appendonly yes`, then try again"
        )


def _foreign(folder: Path, server: RedisBinary, *, writer: str) -> str:
    return (
        f"`{folder}` was written by {writer}, and {server} cannot read it; "
        f"set `{SETTING}` to the server that wrote it"
    )


def explain_log(folder: Path, server: RedisBinary, lines: list[str]) -> str | None:
    """What the last lines of a server's log say about its append-only files."""
    text = "\n".join(lines)
    if "Can't handle RDB format version" in text:
        return _foreign(folder, server, writer="another or a newer server")
    if "Bad file format reading the append only file" in text:
        return (
            f"Redis refuses its append-only file in `{folder}`: it is damaged in the middle. "
            "Restore a copy, or cut it at the first bad entry with `weir doctor --repair-redis` "
            "(what was written after it is lost)"
        )
    return None


def read_snapshot(folder: Path) -> AppendOnlySnapshot | None:
    """The snapshot at the front of the folder's append-only files, if there is one."""
    files = _files(folder)
    return _snapshot_of(files[0]) if files and files[0].is_file() else None


def _snapshot_of(file: Path) -> AppendOnlySnapshot | None:
    """The snapshot that the file begins with, if it does."""
    with file.open("rb") as opened:
        head = opened.read(_HEAD_BYTES)
    told = _FORMAT.match(head)
    if told is None:
        return None
    writer = _WRITER.search(head)
    named = f"{writer[1].decode().capitalize()} {writer[2].decode()}" if writer else "another server"
    return AppendOnlySnapshot(family=told[1].decode(), number=int(told[2]), writer=named)


def repair_append_only(folder: Path, server: RedisBinary) -> str:
    """Cut the last append-only file at its first bad entry; what was done, in words.

    Damage in another file cannot be cut: what stands in the later ones builds on it.
    """
    check_append_only(folder, server)
    files = _files(folder)
    if not files:
        raise Misconfigured(f"there is no append-only file in `{folder}`; nothing was repaired")
    last = files[-1]
    snapshot = _snapshot_of(last)
    if snapshot is None:
        return _cut(last)
    if snapshot.family == "VALKEY":
        raise Misconfigured(f"`{last}` is a snapshot and cannot be cut; restore a copy of its folder")
    return _repair_by_server(last, server)


def _cut(file: Path) -> str:
    size, sound = file.stat().st_size, sound_bytes(file)
    if sound == size:
        return f"`{file}` is whole; if Redis still refuses it, restore a copy"
    os.truncate(file, sound)
    return f"cut `{file}` at byte {sound:,}; the {size - sound:,} bytes behind it are lost"


def _repair_by_server(file: Path, server: RedisBinary) -> str:
    """A snapshot and commands in one file, as old servers write it: a server knows where the one ends."""
    # The server's binary is the checker too when it is called by that name.
    done = subprocess.run(
        ["redis-check-aof", "--fix", str(file)],
        executable=str(server.path),
        input="y\n",
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise Misconfigured(
            f"`{file}` cannot be repaired ({done.stdout.strip()[-200:]}); restore a copy of its folder"
        )
    return done.stdout.strip()


def _files(folder: Path) -> list[Path]:
    """The append-only files in the order in which a server reads them: the base, then its increments."""
    manifest = folder / SPLIT / f"{SINGLE}.manifest"
    if not manifest.is_file():
        single = folder / SINGLE
        return [single] if single.is_file() else []
    entries = []
    for line in manifest.read_text().splitlines():
        words = line.split()
        entries.append(dict(zip(words[::2], words[1::2], strict=False)))
    kinds = ("b", "i")
    current = [entry for entry in entries if entry.get("type") in kinds]
    return [manifest.parent / entry["file"] for entry in sorted(current, key=_reading_order)]


def _reading_order(entry: dict[str, str]) -> tuple[bool, int]:
    return entry["type"] == "i", int(entry["seq"])
