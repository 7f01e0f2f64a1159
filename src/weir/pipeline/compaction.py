"""Joins the files of closed hours of the archive: a few large ones instead of thousands of small ones.

The joined file covers the ranges of the files that it replaces, and is written before they are removed. A run
that was killed in between leaves both, and readers of the archive still count every event once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from weir.model.durations import HOUR_MS, MINUTE_MS
from weir.pipeline.archive import (
    Archive,
    ArchiveFile,
    EncodedFile,
    covered_once,
    encoded,
    joined_ranges,
    keep_folder,
    within,
)
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.landing import in_stream_order

MAX_FILES = 500
MAX_EVENTS = 2_000_000
"""The most events in one file; this many fit into memory at once, even if batches were large."""
MAX_BYTES = 256 * 1024 * 1024
"""The most bytes of files that are joined into one; payloads in the log make events large."""
MIN_FILES = 10
"""Hours with fewer files are left as they are."""
# An hour is closed this long after its end. Later events get files of their own.
SETTLED_MS = 10 * MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    files: int
    into: int


def compact(
    archive: Archive,
    definition: MetricDefinition,
    *,
    now_ms: int,
    before_each: Callable[[], None] = lambda: None,
) -> Compacted:
    """Join the files of every closed hour of one metric."""
    files = archive.files(definition.name, from_ms=0, to_ms=now_ms - HOUR_MS - SETTLED_MS)
    joined = into = 0
    for folder in sorted({file.folder for file in files}):
        mine = [file for file in files if file.folder == folder]
        if len(mine) < MIN_FILES:
            continue
        for portion in _portions(archive, mine):
            if len(portion) > 1:
                joined += len(portion)
                into += 1
                before_each()
                _join(archive, definition, portion)
    return Compacted(files=joined, into=into)


def _portions(archive: Archive, files: Sequence[ArchiveFile]) -> Iterator[list[ArchiveFile]]:
    """Groups of neighbouring files, each small enough to become one file."""
    portion: list[ArchiveFile] = []
    events = size = 0
    for file in files:
        rows = archive.rows(file.path)
        full = events + rows > MAX_EVENTS or size + file.size > MAX_BYTES
        if portion and (full or len(portion) == MAX_FILES):
            yield portion
            portion, events, size = [], 0, 0
        portion.append(file)
        events, size = events + rows, size + file.size
    if portion:
        yield portion


def _join(archive: Archive, definition: MetricDefinition, files: Sequence[ArchiveFile]) -> None:
    ranges = [(file.path, archive.ranges(file.path)) for file in files]
    # Overlaps are resolved before the join, or the joined file would hold events twice.
    counting = list(covered_once(ranges))
    tables = [within(archive.read(path, definition.kind), mine) for path, mine in counting]
    covered = joined_ranges(one for _, mine in counting for one in mine)
    digest = hashlib.blake2b(repr(covered).encode(), digest_size=16).hexdigest()
    hour_ms, name = files[0].hour_ms, f"{keep_folder(files[0].keep_s)}joined-{digest}.parquet"
    # Write before removing: a kill in between leaves overlapping files, which `covered_once` sorts out.
    events = in_stream_order(pa.concat_tables(tables))
    content = encoded(definition, events, ranges=covered)
    archive.put(definition.name, EncodedFile(hour_ms=hour_ms, name=name, content=content))
    archive.remove([file.path for file in files if not file.path.endswith(f"/{name}")])
