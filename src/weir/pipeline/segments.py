"""Carries entries through Spark in a few rows with many entries each, so that the JVM only copies bytes.

With one row per event, every field would be copied and converted between the two Python processes of a
task. With one row per run of entries, that costs next to nothing (0010).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from weir.pipeline.offsets import IdRange, ReadTask
from weir.telemetry.entries import Entries
from weir.telemetry.store import StreamGap

SPARK_SCHEMA = (
    "metric string, shard int, token string, at_ms long, after string, until string, "
    "ids binary, lengths binary, data binary, gap_after string, gap_until string, gap_entries long"
)
ARROW_SCHEMA = pa.schema(
    [
        ("metric", pa.string()),
        ("shard", pa.int32()),
        ("token", pa.string()),
        ("at_ms", pa.int64()),
        ("after", pa.string()),
        ("until", pa.string()),
        ("ids", pa.binary()),
        ("lengths", pa.binary()),
        ("data", pa.binary()),
        ("gap_after", pa.string()),
        ("gap_until", pa.string()),
        ("gap_entries", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of entries of one stream, or a gap in it, with the token of the insert that it belongs to."""

    metric: str
    shard: int
    token: str
    at_ms: int
    after: str
    until: str
    entries: Entries | None = None
    gap: StreamGap | None = None


def segment_of(read_task: ReadTask, piece: IdRange, content: Entries | StreamGap) -> Segment:
    return Segment(
        metric=piece.metric,
        shard=piece.shard,
        token=read_task.token(piece.metric),
        at_ms=read_task.at_ms,
        after=piece.after,
        until=piece.until,
        entries=content if isinstance(content, Entries) else None,
        gap=content if isinstance(content, StreamGap) else None,
    )


def record_batch(segment: Segment) -> pa.RecordBatch:
    """The segment as a record batch of one row."""
    entries, gap = segment.entries, segment.gap
    row = {
        "metric": segment.metric,
        "shard": segment.shard,
        "token": segment.token,
        "at_ms": segment.at_ms,
        "after": segment.after,
        "until": segment.until,
        "ids": entries.ids.tobytes() if entries else None,
        "lengths": entries.lengths.tobytes() if entries else None,
        "data": entries.data if entries else None,
        "gap_after": gap.after if gap else None,
        "gap_until": gap.until if gap else None,
        "gap_entries": gap.entries if gap else None,
    }
    return pa.RecordBatch.from_pylist([row], ARROW_SCHEMA)


def segments_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Segment]:
    """The segments in some record batches."""
    for batch in batches:
        for row in batch.to_pylist():
            yield _segment(row)


def _segment(row: dict[str, Any]) -> Segment:
    entries = gap = None
    if row["data"] is not None:
        entries = Entries(
            ids=np.frombuffer(row["ids"], np.uint64).reshape(-1, 2),
            lengths=np.frombuffer(row["lengths"], np.uint32),
            data=row["data"],
        )
    if row["gap_after"] is not None:
        gap = StreamGap(after=row["gap_after"], until=row["gap_until"], entries=row["gap_entries"])
    named = {name: row[name] for name in ("metric", "shard", "token", "at_ms", "after", "until")}
    return Segment(**named, entries=entries, gap=gap)
