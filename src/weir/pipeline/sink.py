"""The two writers of the job: they store partials in the archive and, exactly once, in the warehouse.

The archive comes first, so that everything in the warehouse can be rebuilt. Every insert has a token that
follows from the ids in it, so repeating any step changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from pyspark import TaskContext

from weir.errors import WarehouseUnavailable
from weir.model.backoff import Backoff
from weir.pipeline.archive import Archive
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.partials import Partial, numbered, partials_in
from weir.pipeline.transforms import landing_batch
from weir.pipeline.worker_gc import freeze_imports
from weir.warehouse.audit_history import remember_drift
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.ingest import GapRow, RejectRow, insert_gaps, insert_rejects

SLICE_ROWS = 200_000
"""Rows per insert. More rows are cut at fixed positions, and each part has its own token."""

# A short outage of ClickHouse must not fail the Spark task: repeating it would read the streams again.
ATTEMPTS = 3
_BACKOFF = Backoff(first_s=0.25, longest_s=1.0, factor=4)
# A batch of 100,000 queues takes a loaded server tens of seconds, and giving up would only repeat it.
INSERT_TIMEOUT_S = 120

RESULT_SCHEMA = (
    "metric string, whole boolean, events long, rows long, rejected long, newest_ms long, busy_s double, "
    "rejects string, gaps string, handed binary"
)
_RESULT_TYPES = pa.schema(
    [
        ("metric", pa.string()),
        ("whole", pa.bool_()),
        ("events", pa.int64()),
        ("rows", pa.int64()),
        ("rejected", pa.int64()),
        ("newest_ms", pa.int64()),
        ("busy_s", pa.float64()),
        ("rejects", pa.string()),
        ("gaps", pa.string()),
        ("handed", pa.binary()),
    ]
)
MERGED_SCHEMA = "rows long, events long"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The stores that tasks write to; Spark pickles them together with the writers."""

    clickhouse_url: str
    archive: str | None
    definitions: Mapping[str, MetricDefinition]


def land(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, *, hand_rows: int = 0
) -> Iterator[pa.RecordBatch]:
    """Store the archive files of partials, and the rows and notes that need no merge; yields their figures.

    The rows of a partial with at most `hand_rows` rows go to the driver, which joins the rows of all tasks.
    """
    freeze_imports()
    for batch in batches:
        notes = batch.select(["rejects", "gaps"]).to_pylist()
        for number, (partial, note_texts) in enumerate(zip(partials_in([batch]), notes, strict=True)):
            handed = partial.rows is not None and partial.rows.num_rows <= hand_rows
            figures = {
                "metric": partial.metric,
                "whole": partial.whole,
                "events": partial.events,
                "rows": _land(partial, options, handed=handed),
                "rejected": sum(reject.events for reject in partial.rejects),
                "newest_ms": partial.newest_ms,
                "busy_s": time.time() - partial.began_s,
                **note_texts,
                "handed": batch["rows"][number].as_py() if handed else None,
            }
            yield pa.RecordBatch.from_pylist([figures], _RESULT_TYPES)


def land_merged(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, *, definition: MetricDefinition, token: str
) -> Iterator[pa.RecordBatch]:
    """Insert a partition of merged rows; its number is a part of its token."""
    freeze_imports()
    context = TaskContext.get()
    assert context is not None
    rows = landing_batch(list(batches), definition)
    insert(options, definition, rows, token=f"{token}-p{context.partitionId()}")
    events = int(rows["events"].to_numpy().sum())
    yield pa.RecordBatch.from_pylist([{"rows": rows.num_rows, "events": events}])


def insert(options: SinkOptions, definition: MetricDefinition, rows: pa.Table, *, token: str) -> None:
    """Insert landing rows in blocks, each exactly once."""
    for start in range(0, rows.num_rows, SLICE_ROWS):
        # Cut first: a token stands for the rows between two positions, in whatever order they are inserted.
        block = _in_key_order(definition, rows.slice(start, SLICE_ROWS))
        _insert(options, definition.landing, block, numbered(token, start))


def note(options: SinkOptions, gaps: Sequence[GapRow], rejects: Sequence[RejectRow], *, token: str) -> None:
    """Note gaps and rejected events."""
    now_ms = time.time_ns() // 1_000_000
    if gaps:
        insert_gaps(connection(options.clickhouse_url), gaps, token=f"{token}-gaps", now_ms=now_ms)
    if rejects:
        insert_rejects(connection(options.clickhouse_url), rejects, token=f"{token}-rejects", now_ms=now_ms)


def remember(options: SinkOptions, gaps: Sequence[GapRow]) -> None:
    """Note the drift from before some gaps; call this before rows from behind the gaps are inserted."""
    # As soon as an event from behind the gap has landed, the drift of its queue includes the loss in the gap.
    if gaps:
        remember_drift(connection(options.clickhouse_url), gaps)


def _land(partial: Partial, options: SinkOptions, *, handed: bool) -> int:
    """Store one partial, or only its files if its rows are handed on; returns the rows that were inserted."""
    definition = options.definitions[partial.metric]
    # Archive first: a rebuild must find every event that the warehouse counts.
    if options.archive is not None:
        archive = Archive(options.archive)
        for file in partial.files:
            archive.put(partial.metric, file)
    if handed:
        return 0
    if partial.whole:
        remember(options, partial.gaps)
    inserted = 0
    # Plain rows are not merged, so the plain rows of a cut stream are final too.
    if partial.rows is not None and (partial.whole or definition.plain):
        insert(options, definition, partial.rows, token=partial.token)
        inserted = partial.rows.num_rows
    # Several tasks can see parts of one gap in a cut stream, so the driver notes such gaps when all tasks
    # have read.
    if partial.whole:
        note(options, partial.gaps, partial.rejects, token=partial.token)
    return inserted


def _in_key_order(definition: MetricDefinition, rows: pa.Table) -> pa.Table:
    """Sums in the order of their tables' keys."""
    # ClickHouse sorts a block for each tier unless it is in order, so sorting it once here is cheaper.
    if definition.plain:
        return rows
    return rows.sort_by([(name, "ascending") for name in (*definition.kind.dimensions, "bucket_start")])


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


@lru_cache(maxsize=2)
def connection(url: str) -> ClickHouseConnection:
    """One connection per worker process, because opening one asks the server several questions."""
    return ClickHouseConnection(url, timeout_s=INSERT_TIMEOUT_S)
