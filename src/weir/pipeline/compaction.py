"""Closed hours of the archive as a few large files instead of thousands of small ones.

The joined file covers the ranges of those it replaces and appears before they go. A run that was killed
in between leaves both, and whoever reads the archive counts every event once all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from weir.model.durations import HOUR_MS
from weir.pipeline.archive import Archive, ArchiveFile, covered_once, joined_ranges, within
from weir.pipeline.definition import MetricDefinition

MAX_FILES = 500
MAX_EVENTS = 2_000_000
"""How much becomes one file: what fits into memory at once, even where batches were large."""
MIN_FILES = 10
"""Fewer than this are left as they are."""
SETTLED_MS = 10 * 60_000
"""An hour is closed once it is this long over; late events make files of their own."""


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
    for hour_ms in sorted({file.hour_ms for file in files}):
        mine = [file for file in files if file.hour_ms == hour_ms]
        if len(mine) < MIN_FILES:
            continue
        for portion in _portions(archive, mine):
            if len(portion) > 1:
                joined += len(portion)
                into += 1
                before_each()
                _join(archive, definition, portion, hour_ms)
    return Compacted(files=joined, into=into)


def _portions(archive: Archive, files: Sequence[ArchiveFile]) -> Iterator[list[ArchiveFile]]:
    """Neighbours that make one file of bounded size."""
    portion: list[ArchiveFile] = []
    events = 0
    for file in files:
        size = archive.rows(file.path)
        if portion and (events + size > MAX_EVENTS or len(portion) == MAX_FILES):
            yield portion
            portion, events = [], 0
        portion.append(file)
        events += size
    if portion:
        yield portion


def _join(archive: Archive, definition: MetricDefinition, files: Sequence[ArchiveFile], hour_ms: int) -> None:
    ranges = [(file.path, archive.ranges(file.path)) for file in files]
    counting = list(covered_once(ranges))
    tables = [within(archive.read(path, definition.kind), mine) for path, mine in counting]
    covered = joined_ranges(one for _, mine in counting for one in mine)
    digest = hashlib.blake2b(repr(covered).encode(), digest_size=16).hexdigest()
    name = f"joined-{digest}.parquet"
    archive.write_hour(definition, pa.concat_tables(tables), hour_ms=hour_ms, name=name, ranges=covered)
    archive.remove([file.path for file in files if not file.path.endswith(f"/{name}")])
