"""The pipeline without Spark: batch after batch, planned, read, landed and settled as the job does it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from weir.pipeline.job import PipelineOptions
from weir.pipeline.offsets import Offset, Stream, read_tasks_between
from weir.pipeline.segments import record_batch, segment_of
from weir.pipeline.sink import land
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import stream_key


class Flow:
    """Moves what the queue streams hold, from where the last batch ended."""

    def __init__(self, options: PipelineOptions) -> None:
        self._options = options
        self._store = StreamStore(options.redis_url)
        self._at = Offset()

    def move(self) -> list[dict[str, object]]:
        """One batch to its end; its figures."""
        end = Offset(at_ms=time.time_ns() // 1_000_000, positions={**self._at.positions, **self._tails()})
        rows = [row for batch in land(self._read(end), self._options.sink) for row in batch.to_pylist()]
        self._store.settle({stream_key(*stream): at for stream, at in end.positions.items()})
        self._at = end
        return rows

    def close(self) -> None:
        self._store.close()

    def _tails(self) -> dict[Stream, str]:
        names = [one.name for one in self._options.definitions]
        streams = [(name, shard) for name in names for shard in range(self._options.shards)]
        tails = self._store.tails([stream_key(*stream) for stream in streams])
        return {stream: tail.last_id for stream, tail in zip(streams, tails, strict=True) if tail is not None}

    def _read(self, end: Offset) -> Iterator[pa.RecordBatch]:
        for read_task in read_tasks_between(self._at, end):
            for piece in read_task.ranges:
                key = stream_key(piece.metric, piece.shard)
                for content in self._store.read(key, after=piece.after, until=piece.until):
                    yield record_batch(segment_of(read_task, piece, content))
