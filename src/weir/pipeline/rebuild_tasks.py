"""Divides the files of the archive between the tasks of a rebuild. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from weir.pipeline.archive import ShardRange
from weir.pipeline.compaction import MAX_EVENTS

# A task holds all events of its files in memory at once.
FILES_PER_TASK = 50
EVENTS_PER_TASK = MAX_EVENTS

Piece = tuple[str, list[ShardRange]]
"""A file of the archive, and the id ranges that are taken from it."""
SizedPiece = tuple[Piece, int]
"""A piece, and about how many events it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildTask:
    """The files that one Spark task reads and adds up."""

    pieces: tuple[Piece, ...]
    whole: bool
    """True if these are all files of their hours; else other tasks read the rest, and the rows are merged."""


def rebuild_tasks(hours: Iterable[Sequence[SizedPiece]], *, mergeable: bool) -> Iterator[RebuildTask]:
    """Put files together into tasks of bounded size; an hour that is too large for one task is cut."""
    waiting: list[SizedPiece] = []
    for hour in hours:
        if waiting and not _fits([*waiting, *hour]):
            yield _task(waiting, whole=True)
            waiting = []
        if _fits(hour):
            waiting.extend(hour)
        else:
            yield from (_task(part, whole=not mergeable) for part in _parts(hour))
    if waiting:
        yield _task(waiting, whole=True)


def _fits(pieces: Sequence[SizedPiece]) -> bool:
    """Whether one task can take these files; a single file always fits."""
    return len(pieces) <= 1 or (
        len(pieces) <= FILES_PER_TASK and sum(events for _, events in pieces) <= EVENTS_PER_TASK
    )


def _parts(hour: Iterable[SizedPiece]) -> Iterator[list[SizedPiece]]:
    """The files of an hour in groups that each fit into a task."""
    part: list[SizedPiece] = []
    for piece in hour:
        if not _fits([*part, piece]):
            yield part
            part = []
        part.append(piece)
    yield part


def _task(pieces: Iterable[SizedPiece], *, whole: bool) -> RebuildTask:
    return RebuildTask(pieces=tuple(piece for piece, _ in pieces), whole=whole)
