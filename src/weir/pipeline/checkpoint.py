"""Repairs a checkpoint whose last file was half written because of a power cut or a full disk."""

from __future__ import annotations

import json
from pathlib import Path

from weir.errors import InvalidInput, NotFound

_FOLDERS = ("offsets", "commits")


def repair_checkpoint(folder: Path) -> list[str]:
    """Remove incomplete entries at the end of the journals with their checksums; returns the removed files.

    Spark then plans that batch again. Only the end of a journal may be incomplete: a broken file before it
    means that something else damaged the folder.
    """
    if not (folder / "offsets").is_dir():
        raise NotFound(f"`{folder}` is not a checkpoint; it has no `offsets`")
    removed: list[Path] = []
    for name in _FOLDERS:
        removed += _incomplete_files(folder / name)
    removed += _orphaned(folder)
    for path in removed:
        path.unlink(missing_ok=True)
    return [str(path.relative_to(folder)) for path in removed]


def broken_files(folder: Path) -> list[str]:
    """The files that `repair_checkpoint` would remove."""
    found = [path for name in _FOLDERS for path in _incomplete_files(folder / name)]
    return [str(path.relative_to(folder)) for path in [*found, *_orphaned(folder)]]


def _incomplete_files(journal: Path) -> list[Path]:
    numbers = _numbers(journal)
    bad = [number for number in numbers if not _complete(journal / str(number))]
    if bad and bad != numbers[-len(bad) :]:
        raise InvalidInput(
            f"`{journal / str(bad[0])}` is damaged though later batches follow; restore a copy"
        )
    return [
        path
        for number in bad
        for path in (journal / str(number), journal / f".{number}.crc")
        if path.exists()
    ]


def _orphaned(folder: Path) -> list[Path]:
    """Drafts, and checksums without their file."""
    found: list[Path] = []
    for name in _FOLDERS:
        journal = folder / name
        if journal.is_dir():
            found += [
                path
                for path in journal.iterdir()
                if path.name.endswith(".tmp")
                or (path.suffix == ".crc" and not (journal / path.name[1:-4]).exists())
            ]
    return found


def _numbers(journal: Path) -> list[int]:
    if not journal.is_dir():
        return []
    return sorted(int(path.name) for path in journal.iterdir() if path.name.isdecimal())


def _complete(path: Path) -> bool:
    """Whether a journal entry has its version line and, after it, only whole JSON values or `-`."""
    lines = path.read_text(errors="replace").splitlines()
    if len(lines) < 2 or not lines[0].startswith("v"):
        return False
    try:
        for line in lines[1:]:
            if line != "-":
                json.loads(line)
    except ValueError:
        return False
    return True
