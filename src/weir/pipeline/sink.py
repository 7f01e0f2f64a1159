"""Writes the events of a read task into the archive and then, exactly once, into the warehouse.

The archive comes first, so that everything in the warehouse can be rebuilt. Every insert has a token that
follows from the ids in it, so repeating any step changes nothing.

A read task delivers one stream after the other. Complete streams are added up and archived while the next
ones are still being read; only the insert waits for all of them (0012).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from weir.errors import WarehouseUnavailable
from weir.model.backoff import Backoff
from weir.pipeline.archive import Archive, ShardRange
from weir.pipeline.decoding import Ages, events_of
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.plain_rows import rows_of
from weir.pipeline.segments import Segment, segments_in
from weir.pipeline.worker_gc import freeze_imports
from weir.warehouse.audit_history import remember_drift
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.ingest import GapRow, RejectRow, insert_gaps, insert_rejects

SLICE_ROWS = 200_000
"""Rows per insert. More rows are cut at fixed positions, and each part has its own token."""

# Streams with fewer events share a file of the archive with the next stream, so that small batches stay one
# file.
PORTION_EVENTS = 50_000

# A short trouble of ClickHouse must not fail the Spark task, whose repetition reads the streams again.
ATTEMPTS = 3
_BACKOFF = Backoff(first_s=0.25, longest_s=1.0, factor=4)
# A batch of 100,000 queues takes a loaded server tens of seconds, and giving up would only repeat it.
INSERT_TIMEOUT_S = 120

RESULT_SCHEMA = (
    "metric string, events long, rows long, rejected long, gaps long, newest_ms long, busy_s double"
)
_RESULT = pa.schema(
    [
        ("metric", pa.string()),
        ("events", pa.int64()),
        ("rows", pa.int64()),
        ("rejected", pa.int64()),
        ("gaps", pa.int64()),
        ("newest_ms", pa.int64()),
        ("busy_s", pa.float64()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The stores that read tasks write to; Spark pickles them together with `land`."""

    clickhouse_url: str
    archive: str | None
    definitions: Mapping[str, MetricDefinition]
    ages: Ages


@dataclass(slots=True, kw_only=True)
class _Collected:
    """The events of one metric in a read task, on their way to the stores."""

    definition: MetricDefinition
    token: str
    tables: list[pa.Table] = field(default_factory=list)
    """Events that are neither archived nor added up yet; `ranges` are the id ranges they come from."""
    ranges: dict[int, ShardRange] = field(default_factory=dict)
    archiving: list[Future[None]] = field(default_factory=list)
    landing: list[pa.Table] = field(default_factory=list)
    rejects: list[RejectRow] = field(default_factory=list)
    gaps: list[GapRow] = field(default_factory=list)
    events: int = 0
    newest_ms: int = 0

    @property
    def waiting(self) -> int:
        return sum(table.num_rows for table in self.tables)


def land(batches: Iterable[pa.RecordBatch], options: SinkOptions) -> Iterator[pa.RecordBatch]:
    """Archive and insert one read task's segments; yields one row of figures per metric."""
    freeze_imports()
    began = time.perf_counter()
    read_task: dict[str, _Collected] = {}
    with ThreadPoolExecutor(max_workers=1) as writer:
        for segment in segments_in(batches):
            _collect(read_task, segment, options, writer)
        for collected in read_task.values():
            _add_up(collected, options, writer)
            row = _store(collected, options)
            yield pa.RecordBatch.from_pylist([{**row, "busy_s": time.perf_counter() - began}], _RESULT)


def _collect(
    read_task: dict[str, _Collected], segment: Segment, options: SinkOptions, writer: Executor
) -> None:
    definition = options.definitions[segment.metric]
    mine = read_task.setdefault(segment.metric, _Collected(definition=definition, token=segment.token))
    # Only between streams: a file of the archive says which id ranges it covers, and it must cover them
    # whole.
    if segment.shard not in mine.ranges and mine.waiting >= PORTION_EVENTS:
        _add_up(mine, options, writer)
    mine.ranges[segment.shard] = (segment.shard, segment.after, segment.until)
    if segment.gap is not None:
        mine.gaps.append(
            GapRow(
                metric=segment.metric,
                shard=segment.shard,
                from_id=segment.gap.after,
                to_id=segment.gap.until,
                reason="dropped before it was read",
                entries=segment.gap.entries,
            )
        )
    if segment.entries is not None:
        events = events_of(definition, segment, segment.entries, ages=options.ages)
        mine.tables.append(events.table)
        mine.rejects.extend(events.rejects)


def _add_up(mine: _Collected, options: SinkOptions, writer: Executor) -> None:
    """Turn the events of whole streams into landing rows, and begin to archive them."""
    if mine.waiting:
        events = pa.concat_tables(mine.tables)
        if options.archive is not None:
            name = _numbered(mine.token, len(mine.archiving))
            ranges = list(mine.ranges.values())
            mine.archiving.append(
                writer.submit(
                    Archive(options.archive).write, mine.definition, events, token=name, ranges=ranges
                )
            )
        mine.landing.append(rows_of(mine.definition, events))
        mine.events += events.num_rows
        mine.newest_ms = max(mine.newest_ms, int(events["at_ms"].to_numpy().max()))
    mine.tables, mine.ranges = [], {}


def _store(mine: _Collected, options: SinkOptions) -> dict[str, object]:
    # The archive before the insert: what the warehouse counts must be there for a rebuild.
    for written in mine.archiving:
        written.result()
    if mine.gaps:
        # Before the insert: the drift of a queue that has spoken since the gap includes its loss in the gap.
        remember_drift(connection(options.clickhouse_url), mine.gaps)
    landing = pa.concat_tables(mine.landing) if mine.landing else None
    rows = landing.num_rows if landing is not None else 0
    for start in range(0, rows, SLICE_ROWS):
        assert landing is not None
        _insert(
            options, mine.definition.landing, landing.slice(start, SLICE_ROWS), _numbered(mine.token, start)
        )
    _note(mine, options)
    return {
        "metric": mine.definition.name,
        "events": mine.events,
        "rows": rows,
        "rejected": sum(reject.events for reject in mine.rejects),
        "gaps": len(mine.gaps),
        "newest_ms": mine.newest_ms,
    }


def _numbered(token: str, number: int) -> str:
    """The token of one part of a read task; the first part has the token itself."""
    return token if number == 0 else f"{token}-{number}"


def _insert(options: SinkOptions, table: str, rows: pa.Table, token: str) -> None:
    """Insert, with a few attempts; the token makes it safe to repeat an attempt with an unknown outcome."""
    for attempt in range(ATTEMPTS):
        try:
            connection(options.clickhouse_url).insert(table, rows, token=token)
            return
        except WarehouseUnavailable:
            # The connection may be broken, so the next attempt opens another.
            connection.cache_clear()
            if attempt + 1 == ATTEMPTS:
                raise
            time.sleep(_BACKOFF.pause_s(attempt + 1))


def _note(mine: _Collected, options: SinkOptions) -> None:
    now_ms = time.time_ns() // 1_000_000
    if mine.gaps:
        insert_gaps(connection(options.clickhouse_url), mine.gaps, token=f"{mine.token}-gaps", now_ms=now_ms)
    if mine.rejects:
        insert_rejects(
            connection(options.clickhouse_url), mine.rejects, token=f"{mine.token}-rejects", now_ms=now_ms
        )


@lru_cache(maxsize=2)
def connection(url: str) -> ClickHouseConnection:
    """One connection per worker process, because opening one asks the server several questions."""
    return ClickHouseConnection(url, timeout_s=INSERT_TIMEOUT_S)
