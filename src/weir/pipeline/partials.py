"""Adds up the entries of a read task where they are read, so that only a few rows cross Spark. Pure.

A read task yields one `Partial` per metric, or two if it reads both whole streams and parts of cut ones. A
partial is one row of Spark: its landing rows and its archive files are binary values, which the JVM only
copies. One row per event, or per landing row, would cost the JVM 13 µs each (0010).

A task reads stream after stream, and adds up the complete ones. A thread encodes these for the archive while
the next stream is read (0012).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from weir.pipeline.archive import EncodedFile, ShardRange, encoded_files
from weir.pipeline.decoding import Ages, events_of
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.offsets import IdRange, ReadTask
from weir.pipeline.plain_rows import rows_of
from weir.telemetry.entries import Entries
from weir.telemetry.store import StreamGap
from weir.telemetry.stream_ids import parse_id
from weir.warehouse.ingest import GapRow, RejectRow
from weir.warehouse.tables import GapKind

# Streams with fewer events share a file of the archive with the next stream, so a small batch is one file.
PORTION_EVENTS = 50_000

SPARK_SCHEMA = (
    "metric string, token string, whole boolean, began_s double, events long, newest_ms long, "
    "rejects string, gaps string, rows binary, "
    "files array<struct<hour_ms: long, name: string, content: binary>>"
)
_FILE = pa.struct([("hour_ms", pa.int64()), ("name", pa.string()), ("content", pa.binary())])
ARROW_SCHEMA = pa.schema(
    [
        ("metric", pa.string()),
        ("token", pa.string()),
        ("whole", pa.bool_()),
        ("began_s", pa.float64()),
        ("events", pa.int64()),
        ("newest_ms", pa.int64()),
        ("rejects", pa.string()),
        ("gaps", pa.string()),
        ("rows", pa.binary()),
        ("files", pa.list_(_FILE)),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """The findings of a read task about one metric, in whole streams or in parts of streams."""

    metric: str
    token: str
    whole: bool
    began_s: float
    """When the task began to read, in seconds since 1970."""
    events: int
    newest_ms: int
    rejects: tuple[RejectRow, ...]
    gaps: tuple[GapRow, ...]
    rows: pa.Table | None
    """Landing rows; None if there are none."""
    files: tuple[EncodedFile, ...]


def partials_of(
    read_task: ReadTask,
    contents: Iterable[tuple[IdRange, Entries | StreamGap]],
    *,
    definitions: Mapping[str, MetricDefinition],
    ages: Ages,
    archived: bool,
) -> Iterator[Partial]:
    """Add up the contents of a read task's ranges, which come range after range."""
    began_s = time.time()
    found: dict[tuple[str, bool], _Collected] = {}
    with ThreadPoolExecutor(max_workers=1) as encoder:
        for piece, content in contents:
            key = piece.metric, piece.whole
            if key not in found:
                found[key] = _Collected(
                    definition=definitions[piece.metric],
                    token=read_task.token(piece.metric, whole=piece.whole),
                    encoder=encoder if archived else None,
                )
            found[key].take(piece, content, at_ms=read_task.at_ms, ages=ages)
        for (_, whole), collected in found.items():
            yield collected.partial(whole=whole, began_s=began_s)


@dataclass(slots=True, kw_only=True)
class _Collected:
    """The events of one metric in a read task, on their way to a partial."""

    definition: MetricDefinition
    token: str
    encoder: Executor | None
    tables: list[pa.Table] = field(default_factory=list)
    """Events that are neither encoded nor added up yet; `ranges` are the id ranges they come from."""
    ranges: dict[IdRange, ShardRange] = field(default_factory=dict)
    waiting: int = 0
    files: list[Future[list[EncodedFile]]] = field(default_factory=list)
    rows: list[pa.Table] = field(default_factory=list)
    rejects: list[RejectRow] = field(default_factory=list)
    gaps: list[GapRow] = field(default_factory=list)
    events: int = 0
    newest_ms: int = 0

    def take(self, piece: IdRange, content: Entries | StreamGap, *, at_ms: int, ages: Ages) -> None:
        # Add up only between ranges: a file of the archive names the id ranges that it covers, and it must
        # cover them whole.
        if piece not in self.ranges and self.waiting >= PORTION_EVENTS:
            self.add_up()
        self.ranges[piece] = (piece.shard, piece.after, piece.until)
        if isinstance(content, StreamGap):
            self.gaps.append(
                GapRow(
                    metric=piece.metric,
                    shard=piece.shard,
                    from_id=content.after,
                    to_id=content.until,
                    reason="dropped before it was read",
                    entries=content.entries,
                )
            )
            return
        events = events_of(self.definition, content, shard=piece.shard, at_ms=at_ms, ages=ages)
        self.tables.append(events.table)
        self.waiting += events.table.num_rows
        self.rejects.extend(events.rejects)

    def add_up(self) -> None:
        """Turn the events of whole ranges into landing rows, and begin to encode them for the archive."""
        if self.waiting:
            events = pa.concat_tables(self.tables)
            if self.encoder is not None:
                name, ranges = numbered(self.token, len(self.files)), list(self.ranges.values())
                self.files.append(
                    self.encoder.submit(encoded_files, self.definition, events, token=name, ranges=ranges)
                )
            self.rows.append(rows_of(self.definition, events))
            self.events += events.num_rows
            self.newest_ms = max(self.newest_ms, int(events["at_ms"].to_numpy().max()))
        self.tables, self.ranges, self.waiting = [], {}, 0

    def partial(self, *, whole: bool, began_s: float) -> Partial:
        self.add_up()
        return Partial(
            metric=self.definition.name,
            token=self.token,
            whole=whole,
            began_s=began_s,
            events=self.events,
            newest_ms=self.newest_ms,
            rejects=tuple(self.rejects),
            gaps=tuple(self.gaps),
            rows=pa.concat_tables(self.rows) if self.rows else None,
            files=tuple(file for encoding in self.files for file in encoding.result()),
        )


def numbered(token: str, number: int) -> str:
    """The name of one part of the data that a token names; the first part has the token itself."""
    return token if number == 0 else f"{token}-{number}"


def record_batch(partial: Partial) -> pa.RecordBatch:
    """The partial as a record batch of one row."""
    row = {
        **{name: getattr(partial, name) for name in ("metric", "token", "whole", "began_s")},
        "events": partial.events,
        "newest_ms": partial.newest_ms,
        "rejects": json.dumps([asdict(reject) for reject in partial.rejects]),
        "gaps": json.dumps([asdict(gap) for gap in partial.gaps]),
        "rows": _as_stream(partial.rows) if partial.rows is not None else None,
        "files": [asdict(file) for file in partial.files],
    }
    return pa.RecordBatch.from_pylist([row], ARROW_SCHEMA)


def partials_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Partial]:
    """The partials in some record batches."""
    for batch in batches:
        for row in batch.to_pylist():
            yield _partial(row)


def rows_in(content: bytes) -> pa.Table:
    """Landing rows as a partial carries them."""
    with pa.ipc.open_stream(pa.py_buffer(content)) as stream:
        return stream.read_all()


def gaps_in(text: str) -> tuple[GapRow, ...]:
    return tuple(GapRow(**{**gap, "kind": GapKind(gap["kind"])}) for gap in json.loads(text))


def rejects_in(text: str) -> tuple[RejectRow, ...]:
    return tuple(RejectRow(**{**row, "samples": tuple(row["samples"])}) for row in json.loads(text))


def joined_gaps(gaps: Iterable[GapRow]) -> list[GapRow]:
    """The gaps, with the parts of one gap joined: a part begins where the part before it ends."""
    joined: list[GapRow] = []
    for gap in sorted(gaps, key=lambda gap: (gap.shard, parse_id(gap.from_id))):
        if joined and joined[-1].shard == gap.shard and joined[-1].to_id == gap.from_id:
            # Redis counts all entries that it removed from a stream, so the first part counts the whole gap.
            joined[-1] = replace(joined[-1], to_id=gap.to_id)
        else:
            joined.append(gap)
    return joined


def _partial(row: Mapping[str, Any]) -> Partial:
    return Partial(
        **{name: row[name] for name in ("metric", "token", "whole", "began_s", "events", "newest_ms")},
        rejects=rejects_in(row["rejects"]),
        gaps=gaps_in(row["gaps"]),
        rows=rows_in(row["rows"]) if row["rows"] is not None else None,
        files=tuple(EncodedFile(**file) for file in row["files"]),
    )


def _as_stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    # The JVM copies the bytes twice. Rows of few events are mostly zeros: compressed, they have a ninth of
    # the bytes and take less time (0013).
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_table(rows.combine_chunks())
    content: bytes = sink.getvalue().to_pybytes()
    return content
