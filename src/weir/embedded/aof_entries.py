"""Reads an append-only file command by command, to find its holes and its first damaged entry.

Weir has its own reader because the checker of Valkey 9.1 does not know the snapshots that Valkey 9.1 writes:
it reports every folder that begins with one as damaged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

# The servers' own limits.
_MOST_ARGUMENTS = 1 << 20
_LONGEST_ARGUMENT = 512 << 20
_LONGEST_LINE = 1 << 16
_END = b"\r\n"
_CHUNK = 1 << 20
_BODIES = b":bodies"
"""How the key ends under which a queue keeps the bodies of its messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """A run of NULs where an entry should begin. Servers leave one after a write that a full disk cut short.

    They take the part that was written away again but go on writing behind it, and the file system fills the
    space in between with NULs. The entry itself follows whole.
    """

    start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a reading of the whole file found."""

    size: int
    sound: int
    """How many bytes from the start are complete commands, complete transactions, and holes."""
    holes: tuple[Hole, ...]
    torn: bool
    """Whether the file ends in the middle of an entry, as a kill may leave it. Redis opens such a file."""

    @property
    def mendable(self) -> bool:
        """Whether the file is whole but for its holes."""
        return bool(self.holes) and (self.sound == self.size or self.torn)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutLoss:
    """What a cut would take away, as far as it can still be read."""

    commands: int
    messages: int
    """Messages that were put in."""
    ended: int
    """Messages that ended, and would be there again."""


class _Broken(Exception):
    """The next bytes are not a command."""


class _Torn(_Broken):
    """The file ends within the next command."""


def survey(path: Path) -> Survey:
    """Read the file to its end, or to the first damage that is not a hole."""
    sound, holes, in_transaction, torn = 0, [], False, False
    with path.open("rb") as file:
        while True:
            start = file.tell()
            try:
                name = _next_command(file)
                if name is None:
                    torn = in_transaction
                    break
                if name in (b"MULTI", b"EXEC"):
                    in_transaction = _is_inside(name, in_transaction)
            except _Broken as broken:
                hole = _hole_at(file, start)
                if hole is None:
                    torn = isinstance(broken, _Torn)
                    break
                holes.append(hole)
            # Redis does not replay half a transaction, so a cut would be before its beginning.
            if not in_transaction:
                sound = file.tell()
    kept = tuple(hole for hole in holes if hole.start < sound)
    return Survey(size=path.stat().st_size, sound=sound, holes=kept, torn=torn)


def write_without_holes(path: Path, holes: tuple[Hole, ...], copy: Path) -> None:
    """Write all but the holes to `copy`, and bring it to the disk."""
    with path.open("rb") as source, copy.open("wb") as target:
        for hole in holes:
            _copy(source, target, hole.start - source.tell())
            source.seek(hole.start + hole.size)
        _copy(source, target, path.stat().st_size - source.tell())
        target.flush()
        os.fsync(target.fileno())


def loss_after(path: Path, sound: int) -> CutLoss:
    """Read what stands behind the damage at `sound`, as far as it can be read again."""
    commands = messages = ended = known = 0
    with path.open("rb") as file:
        for start in _beginnings(path, sound):
            if start < known:
                continue
            file.seek(start)
            try:
                while (command := _read_command(file)) is not None:
                    commands, known = commands + 1, file.tell()
                    name, key = command[0].upper(), command[1] if len(command) > 1 else b""
                    if not key.endswith(_BODIES):
                        continue
                    if name in (b"HSET", b"HSETNX", b"HMSET"):
                        messages += len(command) // 2 - 1
                    elif name == b"HDEL":
                        ended += len(command) - 2
            except _Broken:
                continue
    return CutLoss(commands=commands, messages=messages, ended=ended)


def _beginnings(path: Path, start: int) -> Iterator[int]:
    """Every place from `start` on at which a command may begin."""
    with path.open("rb") as file:
        file.seek(start)
        at, kept = start, b""
        while chunk := file.read(_CHUNK):
            text = kept + chunk
            found = text.find(b"*")
            while found >= 0:
                yield at - len(kept) + found
                found = text.find(b"*", found + 1)
            at, kept = at + len(chunk), b""


def _hole_at(file: BinaryIO, start: int) -> Hole | None:
    """The run of NULs at `start`, if an entry or the end of the file follows; the file then stands there."""
    file.seek(start)
    size = 0
    while chunk := file.read(_CHUNK):
        rest = chunk.lstrip(b"\0")
        size += len(chunk) - len(rest)
        if rest:
            if not size or rest[:1] not in (b"*", b"#"):
                return None
            break
    file.seek(start + size)
    return Hole(start=start, size=size) if size else None


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size > 0 and (chunk := source.read(min(size, _CHUNK))):
        target.write(chunk)
        size -= len(chunk)


def _is_inside(name: bytes, in_transaction: bool) -> bool:
    """Whether a transaction is open after a `MULTI` or an `EXEC`."""
    if (name == b"MULTI") is in_transaction:
        raise _Broken
    return not in_transaction


def _next_command(file: BinaryIO) -> bytes | None:
    """The name of the next command, or `#` for a remark; None at the end."""
    command = _read_command(file)
    return None if command is None else command[0].upper()


def _read_command(file: BinaryIO) -> list[bytes] | None:
    """The next command with its arguments, or `#` for a remark; None at the end."""
    line = file.readline(_LONGEST_LINE)
    if not line:
        return None
    if line.startswith(b"#") and line.endswith(_END):
        return [b"#"]
    count = _number(line, mark=b"*", most=_MOST_ARGUMENTS)
    if not count:
        raise _Broken
    return [_argument(file) for _ in range(count)]


def _argument(file: BinaryIO) -> bytes:
    length = _number(file.readline(_LONGEST_LINE), mark=b"$", most=_LONGEST_ARGUMENT)
    data = file.read(length + len(_END))
    if len(data) != length + len(_END):
        raise _Torn
    if not data.endswith(_END):
        raise _Broken
    return data[:length]


def _number(line: bytes, *, mark: bytes, most: int) -> int:
    if line[:1] in (mark, b"") and not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
        raise _Torn
    digits = line[1:-2]
    if line[:1] != mark or not line.endswith(_END) or not digits.isdigit() or int(digits) > most:
        raise _Broken
    return int(digits)
