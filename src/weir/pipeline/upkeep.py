"""Maintains the archive beside a running pipeline: removes old hours and joins the files of closed hours.

Code that removes, replaces or reads many files holds the archive's lease. So a rebuild never loses a file
while it runs; the upkeep tries again later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import structlog

from weir.errors import Conflict, WeirError
from weir.model.durations import DAY_MS, HOUR_MS, SECOND_MS
from weir.pipeline.archive import Archive
from weir.pipeline.compaction import compact
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.leases import LEASE_S, Prolong, held_lease
from weir.telemetry.store import StreamStore

_log = structlog.get_logger(__name__)

ARCHIVE_LEASE = "archive"
# An hour is closed ten minutes after its end, so a shorter period would find nothing new.
PERIOD_S = 600.0


@contextmanager
def archive_lease(store: StreamStore, *, wait_s: float = 0) -> Iterator[Prolong]:
    """Hold the archive's lease; yields a function that prolongs it and raises `Conflict` if it was lost."""
    refusal = "another process uses the archive; try again when it is done"
    with held_lease(store, ARCHIVE_LEASE, seconds=LEASE_S, wait_s=wait_s, refusal=refusal) as prolong:
        yield prolong


def expire(archive: Archive, metric: str, *, before_ms: int) -> list[int]:
    """Remove the hours that ended before `before_ms`, and return them."""
    gone = [hour_ms for hour_ms in archive.hours(metric) if hour_ms + HOUR_MS <= before_ms]
    for hour_ms in gone:
        archive.remove_hour(metric, hour_ms)
    return gone


def expire_log(archive: Archive, metric: str, *, now_ms: int) -> list[int]:
    """Remove files of the log that were kept for as long as was promised; return their hours."""
    files = archive.files(metric, from_ms=0, to_ms=now_ms)
    over = [file for file in files if file.hour_ms + HOUR_MS + (file.keep_s or 0) * SECOND_MS <= now_ms]
    archive.remove([file.path for file in over])
    hours = {file.hour_ms for file in over}
    for hour_ms in hours - {file.hour_ms for file in files if file not in over}:
        archive.remove_hour(metric, hour_ms)
    return sorted(hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepOptions:
    archive: str
    redis_url: str
    definitions: Sequence[MetricDefinition]
    keep_days: int
    """0 keeps every hour. The log keeps its hours as the queues promise."""


class Upkeep:
    """Maintains the archive every `PERIOD_S`; a failure is logged and the next round tries again."""

    def __init__(self, options: UpkeepOptions) -> None:
        self._options = options
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="archive", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()

    def run_once(self, *, now_ms: int) -> None:
        """Run one round, unless another process holds the archive."""
        store = StreamStore(self._options.redis_url)
        try:
            with archive_lease(store) as prolong:
                for definition in self._options.definitions:
                    self._maintain(definition, prolong, now_ms=now_ms)
        except Conflict:
            _log.info("the archive is in use; its upkeep waits")
        finally:
            store.close()

    def _maintain(self, definition: MetricDefinition, prolong: Prolong, *, now_ms: int) -> None:
        archive, keep_days = Archive(self._options.archive), self._options.keep_days
        prolong()
        if definition.holds_bodies:
            gone = expire_log(archive, definition.name, now_ms=now_ms)
        else:
            before_ms = now_ms - keep_days * DAY_MS
            gone = expire(archive, definition.name, before_ms=before_ms) if keep_days else []
        done = compact(archive, definition, now_ms=now_ms, before_each=prolong)
        if gone or done.files:
            _log.info(
                "archive", metric=definition.name, hours_removed=len(gone), joined=done.files, into=done.into
            )

    def _run(self) -> None:
        while not self._ended.wait(PERIOD_S):
            try:
                self.run_once(now_ms=time.time_ns() // 1_000_000)
            except (OSError, pa.ArrowException, WeirError) as error:
                _log.warning("the archive's upkeep failed", error=str(error))
