"""Closed hours of the archive as a few large files instead of thousands of small ones.

The joined file covers the ranges of those it replaces and appears before they go. A run that was killed
in between leaves both, and whoever reads the archive counts every event once all the same.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import structlog

from weir.errors import WeirError
from weir.pipeline.archive import HOUR_MS, Archive, ArchiveFile, covered_once, joined_ranges, within
from weir.pipeline.definition import MetricDefinition

_log = structlog.get_logger(__name__)

MAX_FILES = 500
"""Files a joined one: what fits into memory at once."""
MIN_FILES = 10
"""Fewer than this are left as they are."""
SETTLED_MS = 10 * 60_000
"""An hour is closed once it is this long over; late events make files of their own."""
PERIOD_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    files: int
    into: int


def compact(archive: Archive, definition: MetricDefinition, *, now_ms: int) -> Compacted:
    """Join the files of every closed hour of one metric."""
    files = archive.files(definition.name, from_ms=0, to_ms=now_ms - HOUR_MS - SETTLED_MS)
    joined = into = 0
    for hour_ms in sorted({file.hour_ms for file in files}):
        mine = [file for file in files if file.hour_ms == hour_ms]
        if len(mine) >= MIN_FILES:
            for start in range(0, len(mine), MAX_FILES):
                joined += len(mine[start : start + MAX_FILES])
                into += 1
                _join(archive, definition, mine[start : start + MAX_FILES], hour_ms)
    return Compacted(files=joined, into=into)


def _join(archive: Archive, definition: MetricDefinition, files: Sequence[ArchiveFile], hour_ms: int) -> None:
    ranges = [(file.path, archive.ranges(file.path)) for file in files]
    counting = list(covered_once(ranges))
    tables = [within(archive.read(path), mine) for path, mine in counting]
    covered = joined_ranges(one for _, mine in counting for one in mine)
    digest = hashlib.blake2b(repr(covered).encode(), digest_size=16).hexdigest()
    name = f"joined-{digest}.parquet"
    archive.write_hour(definition, pa.concat_tables(tables), hour_ms=hour_ms, name=name, ranges=covered)
    archive.remove([file.path for file in files if not file.path.endswith(f"/{name}")])


class Compactor:
    """Compacts every so often beside the running pipeline; failures are logged and tried again."""

    def __init__(self, archive: str, definitions: Sequence[MetricDefinition]) -> None:
        self._archive = archive
        self._definitions = definitions
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="compactor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()

    def once(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        for definition in self._definitions:
            done = compact(Archive(self._archive), definition, now_ms=now_ms())
            if done.files:
                _log.info("archive compacted", metric=definition.name, files=done.files, into=done.into)

    def _run(self) -> None:
        while not self._ended.wait(PERIOD_S):
            try:
                self.once()
            except (OSError, pa.ArrowException, WeirError) as error:
                _log.warning("the archive was not compacted", error=str(error))
