"""Removes insert tokens whose rows never reached the disk, before the engine opens its directory.

A MergeTree table writes the token of an insert to its deduplication log before it renames the part into
place. After a kill between the two, a retry of the insert does nothing, and its rows are lost. So a log line
is kept only if it is complete and a part on disk covers its block numbers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_PART = re.compile(r"(?P<partition>[^_]+)_(?P<low>\d+)_(?P<high>\d+)_\d+(?:_\d+)?\Z")
_ADDED = "1"

Blocks = dict[str, list[tuple[int, int]]]
"""Partition -> ranges of block numbers that parts on disk cover."""


def repair_deduplication_logs(store: Path) -> int:
    """Remove the lines that cannot be trusted from every table's log, and return their number."""
    return sum(_repair_table(logs) for logs in store.glob("store/*/*/deduplication_logs"))


def _repair_table(logs: Path) -> int:
    blocks = _blocks_on_disk(logs.parent)
    return sum(_repair_file(file, blocks) for file in logs.glob("deduplication_log_*.txt"))


def _blocks_on_disk(table: Path) -> Blocks:
    blocks: Blocks = {}
    for entry in table.iterdir():
        if match := _PART.match(entry.name):
            blocks.setdefault(match["partition"], []).append((int(match["low"]), int(match["high"])))
    return blocks


def _repair_file(file: Path, blocks: Blocks) -> int:
    lines = file.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if _trusted(line, blocks)]
    if len(kept) < len(lines):
        scratch = file.with_suffix(".repair")
        with scratch.open("wb") as out:
            out.writelines(kept)
            out.flush()
            os.fsync(out.fileno())
        scratch.replace(file)
    return len(lines) - len(kept)


def _trusted(line: bytes, blocks: Blocks) -> bool:
    columns = line.decode(errors="replace").rstrip("\n").split("\t")
    if len(columns) != 3 or not line.endswith(b"\n"):
        return False
    part = _PART.match(columns[1])
    if part is None:
        return False
    low, high = int(part["low"]), int(part["high"])
    covered = any(first <= low and high <= last for first, last in blocks.get(part["partition"], ()))
    return columns[0] != _ADDED or covered
