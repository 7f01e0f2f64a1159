"""The pipeline without Spark: batch after batch, planned, read, landed and settled as the job does it.

`drain` is the job itself, on Spark, until the streams are empty.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from weir.pipeline.job import Observe, PipelineOptions, start
from weir.pipeline.offsets import IdRange, Offset, ReadTask, plan_between
from weir.pipeline.partials import partials_of, record_batch
from weir.pipeline.sink import land
from weir.pipeline.source import settle_planned
from weir.telemetry.entries import Entries
from weir.telemetry.store import StreamGap, StreamStore
from weir.telemetry.streams import Stream, stream_key


def drain(spark: SparkSession, options: PipelineOptions, *, observe: Observe) -> None:
    """Land everything that the streams hold now."""
    start(spark, options, observe=observe, available_now=True).awaitTermination()
    # Spark confirms a batch to its source only when it plans the next one.
    settle_planned(options.source)


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
        for read_task in plan_between(self._at, end).read_tasks:
            yield from read(self._options, self._store, read_task)


def read(options: PipelineOptions, store: StreamStore, read_task: ReadTask) -> Iterator[pa.RecordBatch]:
    """The partials of a read task, as a task of Spark reads them."""
    source = options.source
    for partial in partials_of(
        read_task, _contents(store, read_task),
        definitions=source.definitions, ages=source.ages, archived=source.archived,
    ):  # fmt: skip
        yield record_batch(partial)


def _contents(store: StreamStore, read_task: ReadTask) -> Iterator[tuple[IdRange, Entries | StreamGap]]:
    for piece in read_task.ranges:
        for content in store.read(
            stream_key(piece.metric, piece.shard), after=piece.after, until=piece.until
        ):
            yield piece, content
