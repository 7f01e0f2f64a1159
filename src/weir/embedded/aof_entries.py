"""Reads an append-only file command by command, to find its first damaged entry.

Weir has its own reader because the checker of Valkey 9.1 does not know the snapshots that Valkey 9.1 writes:
it reports every folder that begins with one as damaged.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

# The servers' own limits.
_MOST_ARGUMENTS = 1 << 20
_LONGEST_ARGUMENT = 512 << 20
_LONGEST_LINE = 1 << 16
_END = b"\r\n"


class _Broken(Exception):
    """The next bytes are not a command."""


def sound_bytes(path: Path) -> int:
    """How many bytes from the start of the file are complete commands and complete transactions."""
    sound = 0
    in_transaction = False
    with path.open("rb") as file:
        try:
            while name := _next_command(file):
                if name in (b"MULTI", b"EXEC"):
                    in_transaction = _is_inside(name, in_transaction)
                # Redis does not replay half a transaction, so the cut is before its beginning.
                if not in_transaction:
                    sound = file.tell()
        except _Broken:
            pass
    return sound


def _is_inside(name: bytes, in_transaction: bool) -> bool:
    """Whether a transaction is open after a `MULTI` or an `EXEC`."""
    if (name == b"MULTI") is in_transaction:
        raise _Broken
    return not in_transaction


def _next_command(file: BinaryIO) -> bytes | None:
    """The name of the next command, or `#` for a remark; None at the end."""
    line = file.readline(_LONGEST_LINE)
    if not line:
        return None
    if line.startswith(b"#") and line.endswith(_END):
        return b"#"
    count = _number(line, mark=b"*", most=_MOST_ARGUMENTS)
    name = _argument(file).upper()
    for _ in range(count - 1):
        _argument(file)
    return name


def _argument(file: BinaryIO) -> bytes:
    length = _number(file.readline(_LONGEST_LINE), mark=b"$", most=_LONGEST_ARGUMENT)
    data = file.read(length + len(_END))
    if len(data) != length + len(_END) or not data.endswith(_END):
        raise _Broken
    return data[:length]


def _number(line: bytes, *, mark: bytes, most: int) -> int:
    digits = line[1:-2]
    if line[:1] != mark or not line.endswith(_END) or not digits.isdigit() or int(digits) > most:
        raise _Broken
    return int(digits)
