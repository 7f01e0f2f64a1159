"""Checks whether a server may open Redis' append-only files, and repairs them.

Up to Redis 6.2 this is one file, `appendonly.aof`. Since Redis 7 it is a folder, `appendonlydir`, with a
base, increments and a manifest. A newer server adopts the one file as its base.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from weir.embedded.aof_entries import loss_after, survey, write_without_holes
from weir.embedded.redis_binary import SETTING, RedisBinary
from weir.errors import Misconfigured
from weir.model.wording import amount

SINGLE, SPLIT = "appendonly.aof", "appendonlydir"
# Redis 7 split the append-only file into a folder.
_SPLIT_SINCE = (7, 0, 0)
_FORMAT = re.compile(rb"(REDIS|VALKEY)(\d{3,4})")
# The first fields of a snapshot name the server that wrote it; a length stands before the version.
_WRITER = re.compile(rb"(redis|valkey)-ver[\x00-\x3f]([0-9.]+)")
# The fields with the server's name and version come first in a snapshot.
_HEAD_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendOnlySnapshot:
    """The snapshot at the start of an append-only file: its format, and the server that wrote it."""

    family: str
    number: int
    writer: str

    def readable_by(self, server: RedisBinary) -> bool:
        """Whether a server can read this snapshot.

        A server reads its own format and older ones. Redis and Valkey share the formats up to 11; after that
        each has its own. Tried with Redis 6.2, 7.0 and 8.0 and Valkey 8.1 and 9.1, each on the files of each.
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
    """Why a server refuses its append-only files, from its last log lines; None if they do not say."""
    text = "\n".join(lines)
    if "Can't handle RDB format version" in text:
        return _foreign(folder, server, writer="another or a newer server")
    if "Bad file format reading the append only file" in text:
        return (
            f"Redis refuses its append-only file in `{folder}`: it is damaged in the middle. "
            "Restore a copy; `weir doctor --repair-redis` says what else can be done, and what would be lost"
        )
    return None


def mend_holes(folder: Path) -> str | None:
    """Take exactly the holes out of the append-only files; says what was done, or None if there are none.

    Nothing is cut: each file that is mended is whole but for its holes. As it was it is kept in the folder.
    """
    done = [_mend(file, folder) for file in _files(folder) if _snapshot_of(file) is None]
    told = [text for text in done if text is not None]
    return "; ".join(told) or None


def _mend(file: Path, folder: Path) -> str | None:
    found = survey(file)
    if not found.mendable:
        return None
    kept = _place_to_keep(file, folder)
    mended = file.with_suffix(".mended")
    try:
        write_without_holes(file, found.holes, mended)
    except OSError as error:
        mended.unlink(missing_ok=True)
        raise Misconfigured(
            f"`{file}` has a hole that a full disk left, and there is no room to write it without the hole "
            f"({error.strerror}); make room for {found.size:,} bytes and start again"
        ) from None
    os.link(file, kept)
    mended.replace(file)
    _bring_to_disk(file.parent)
    size = sum(hole.size for hole in found.holes)
    places = ", ".join(f"{hole.start:,}" for hole in found.holes)
    return (
        f"took {amount(size, 'NUL byte')} out of `{file}` at {places}, which a full disk had left there; "
        f"nothing else was changed, and the file as it was is kept in `{kept}`"
    )


def _place_to_keep(file: Path, folder: Path) -> Path:
    return folder / f"{file.name}.damaged-{time.time_ns() // 1_000_000}"


def _bring_to_disk(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_snapshot(folder: Path) -> AppendOnlySnapshot | None:
    """The snapshot at the start of the folder's append-only files, if there is one."""
    files = _files(folder)
    return _snapshot_of(files[0]) if files and files[0].is_file() else None


def _snapshot_of(file: Path) -> AppendOnlySnapshot | None:
    """The snapshot at the start of a file, if there is one."""
    with file.open("rb") as opened:
        head = opened.read(_HEAD_BYTES)
    told = _FORMAT.match(head)
    if told is None:
        return None
    writer = _WRITER.search(head)
    named = f"{writer[1].decode().capitalize()} {writer[2].decode()}" if writer else "another server"
    return AppendOnlySnapshot(family=told[1].decode(), number=int(told[2]), writer=named)


def repair_append_only(folder: Path, server: RedisBinary, *, cut: bool = False) -> str:
    """Mend what can be mended exactly; with `cut`, also cut the last append-only file at its first bad entry.

    Returns a sentence that says what was done. Damage in an earlier file cannot be cut, because the later
    files build on it.
    """
    check_append_only(folder, server)
    files = _files(folder)
    if not files:
        raise Misconfigured(f"there is no append-only file in `{folder}`; nothing was repaired")
    mended = mend_holes(folder)
    if mended is not None:
        return mended
    last = files[-1]
    snapshot = _snapshot_of(last)
    if snapshot is None:
        return _cut(last, folder, allowed=cut)
    if not cut:
        raise Misconfigured(
            f"`{last}` holds a snapshot and commands, so it cannot be mended exactly; restore a copy, or let "
            "Redis cut it at the first bad entry with `--repair-redis --cut`"
        )
    if snapshot.family == "VALKEY":
        raise Misconfigured(f"`{last}` is a snapshot and cannot be cut; restore a copy of its folder")
    return _repair_by_server(last, server)


def _cut(file: Path, folder: Path, *, allowed: bool) -> str:
    found = survey(file)
    if found.sound == found.size:
        return f"`{file}` is whole; if Redis still refuses it, restore a copy"
    loss = loss_after(file, found.sound)
    what = (
        f"{found.size - found.sound:,} bytes with at least {amount(loss.commands, 'command')}: "
        f"{amount(loss.messages, 'message')} put in, and {amount(loss.ended, 'message')} that ended and "
        "would be there again"
    )
    if not allowed:
        raise Misconfigured(
            f"`{file}` is damaged at byte {found.sound:,} and cannot be mended exactly. Restore a copy, or "
            f"cut it there with `weir doctor --repair-redis --cut`, which loses {what}"
        )
    kept = _place_to_keep(file, folder)
    shutil.copyfile(file, kept)
    os.truncate(file, found.sound)
    return f"cut `{file}` at byte {found.sound:,}; lost are {what}; the file as it was is kept in `{kept}`"


def _repair_by_server(file: Path, server: RedisBinary) -> str:
    """Repair a file with a snapshot and commands in it, as old servers write them."""
    # Only a server knows where the snapshot ends. Its binary is the checker when it is called by that name.
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
