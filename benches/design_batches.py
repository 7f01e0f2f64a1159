"""The batches of `designs`: each design lands the same backlog in its own way."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benches.pipeline import SHARDS
from weir.pipeline.archive import Archive, encoded_files
from weir.pipeline.batches import land_batch
from weir.pipeline.decoding import events_of
from weir.pipeline.definition import QUEUE_METRIC
from weir.pipeline.entry_rows import entries_schema, entry_rows
from weir.pipeline.job import PipelineOptions
from weir.pipeline.offsets import BatchPlan, IdRange, ReadTask
from weir.pipeline.partials import SPARK_SCHEMA, partials_of, record_batch
from weir.pipeline.planning import JOIN_ROWS
from weir.pipeline.sink import MERGED_SCHEMA, RESULT_SCHEMA, land, land_merged
from weir.pipeline.transforms import bucketed, clamped, counted, merged_rows
from weir.pipeline.worker_gc import freeze_imports, without_collector
from weir.telemetry.entries import Entries
from weir.telemetry.store import StreamStore
from weir.telemetry.stream_ids import ORIGIN
from weir.telemetry.streams import stream_key

METRIC = QUEUE_METRIC.name
_RUN_SCHEMA = "range int, ids binary, lengths binary, data binary"
_RUN_TYPES = pa.schema(
    [("range", pa.int32()), ("ids", pa.binary()), ("lengths", pa.binary()), ("data", pa.binary())]
)
_MARK = 1_000
"""The shard of an empty range, which gives each turn its own insert tokens."""
_turns = itertools.count(1)

Contents = Iterator[tuple[IdRange, Entries]]
Read = Callable[[ReadTask, PipelineOptions, Contents], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Streams that every design reads again, and the session that reads them."""

    spark: SparkSession
    options: PipelineOptions
    tails: Sequence[tuple[Sequence[str], Sequence[str]]]
    """For each batch, the ids in the middle and at the end of every stream's part."""

    def batches(self, *, tasks: int, cut: bool = False, join_rows: int = 0) -> Iterator[BatchPlan]:
        """The batches of the backlog, with new insert tokens; `cut` divides every stream into two halves."""
        afters: Sequence[str] = [ORIGIN] * SHARDS
        for middles, untils in self.tails:
            mark = IdRange(metric=METRIC, shard=_MARK, after=ORIGIN, until=f"0-{next(_turns)}", whole=not cut)
            if cut:
                parts = [_ranges(afters, middles, whole=False), _ranges(middles, untils, whole=False)]
            else:
                parts = [_ranges(afters, untils, whole=True)[task::tasks] for task in range(tasks)]
            at_ms = time.time_ns() // 1_000_000
            yield BatchPlan(
                read_tasks=tuple(
                    ReadTask(number=number, at_ms=at_ms, ranges=(mark, *part))
                    for number, part in enumerate(parts)
                ),
                partitions=1,
                join_rows=join_rows,
            )
            afters = untils


def _behind(backlog: Backlog) -> None:
    for plan in backlog.batches(tasks=1):
        runs = _frame(backlog, plan, _runs, _RUN_SCHEMA)
        add_up = partial(_added_up_behind, read_task=plan.read_tasks[0], options=backlog.options)
        runs.mapInArrow(add_up, RESULT_SCHEMA).collect()


def _raw_rows(backlog: Backlog) -> None:
    for plan in backlog.batches(tasks=2):
        at_ms, ages = plan.read_tasks[0].at_ms, backlog.options.source.ages
        entries = _frame(backlog, plan, _entry_rows, entries_schema(QUEUE_METRIC))
        events = counted(clamped(entries, at_ms=at_ms), at_ms=at_ms, ages=ages)
        rows = merged_rows(bucketed(events, QUEUE_METRIC), QUEUE_METRIC, partitions=2)
        token = plan.read_tasks[0].token(METRIC)
        write = partial(land_merged, options=backlog.options.sink, definition=QUEUE_METRIC, token=token)
        rows.mapInArrow(write, MERGED_SCHEMA).collect()


def _combined(
    backlog: Backlog, *, tasks: int = 1, cut: bool = False, join_rows: int = 0, archived: bool = True
) -> None:
    options = backlog.options if archived else replace(backlog.options, archive=None)
    for plan in backlog.batches(tasks=tasks, cut=cut, join_rows=join_rows):
        land_batch(
            _frame(replace(backlog, options=options), plan, _partials, SPARK_SCHEMA), plan, options.sink
        )


def _archive_branch(backlog: Backlog) -> None:
    for plan in backlog.batches(tasks=1):
        (one,) = plan.read_tasks
        both = replace(plan, read_tasks=(one, replace(one, number=1)))
        land_batch(_frame(backlog, both, _sums_or_files, SPARK_SCHEMA), plan, backlog.options.sink)


DESIGNS: dict[str, Callable[[Backlog], None]] = {
    "behind": _behind,
    "raw_rows": _raw_rows,
    "combined": _combined,
    "two_inserts": partial(_combined, tasks=2),
    "two_joined": partial(_combined, tasks=2, join_rows=JOIN_ROWS),
    "cut_grouped": partial(_combined, tasks=2, cut=True),
    "cut_joined": partial(_combined, tasks=2, cut=True, join_rows=JOIN_ROWS),
    "no_archive": partial(_combined, archived=False),
    "archive_branch": _archive_branch,
}


def _frame(backlog: Backlog, plan: BatchPlan, read: Read, schema: str) -> DataFrame:
    """The rows that the read tasks of a batch yield, each in its own Spark task."""
    numbers = backlog.spark.range(len(plan.read_tasks), numPartitions=len(plan.read_tasks))
    return numbers.mapInArrow(partial(_read, plan=plan, read=read, options=backlog.options), schema)


def _read(
    batches: Iterable[pa.RecordBatch], plan: BatchPlan, read: Read, options: PipelineOptions
) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    for number in [number for batch in batches for number in batch["id"].to_pylist()]:
        with closing(StreamStore(options.redis_url)) as store, without_collector():
            read_task = plan.read_tasks[number]
            yield from read(read_task, options, _contents(store, read_task))


def _contents(store: StreamStore, read_task: ReadTask) -> Contents:
    for piece in read_task.ranges:
        for content in store.read(stream_key(METRIC, piece.shard), after=piece.after, until=piece.until):
            if isinstance(content, Entries):
                yield piece, content


def _partials(read_task: ReadTask, options: PipelineOptions, contents: Contents) -> Iterator[pa.RecordBatch]:
    source = options.source
    for one in partials_of(
        read_task, contents, definitions=source.definitions, ages=source.ages, archived=source.archived
    ):
        yield record_batch(one)


def _runs(read_task: ReadTask, _: PipelineOptions, contents: Contents) -> Iterator[pa.RecordBatch]:
    for piece, content in contents:
        yield pa.RecordBatch.from_pylist([_run_row(read_task, piece, content)], _RUN_TYPES)


def _entry_rows(_: ReadTask, __: PipelineOptions, contents: Contents) -> Iterator[pa.RecordBatch]:
    for piece, content in contents:
        yield from entry_rows(QUEUE_METRIC, content, shard=piece.shard).to_batches()


def _run_row(read_task: ReadTask, piece: IdRange, content: Entries) -> dict[str, Any]:
    return {
        "range": read_task.ranges.index(piece),
        "ids": content.ids.tobytes(),
        "lengths": content.lengths.tobytes(),
        "data": content.data,
    }


def _run_in(read_task: ReadTask, row: dict[str, Any]) -> tuple[IdRange, Entries]:
    return read_task.ranges[row["range"]], Entries(
        ids=np.frombuffer(row["ids"], np.uint64).reshape(-1, 2),
        lengths=np.frombuffer(row["lengths"], np.uint32),
        data=row["data"],
    )


def _added_up_behind(
    batches: Iterable[pa.RecordBatch], read_task: ReadTask, options: PipelineOptions
) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    contents = (_run_in(read_task, row) for batch in batches for row in batch.to_pylist())
    yield from land(_partials(read_task, options, contents), options.sink)


def _sums_or_files(
    read_task: ReadTask, options: PipelineOptions, contents: Contents
) -> Iterator[pa.RecordBatch]:
    """The first task adds up, and the second one makes the files of the archive."""
    if read_task.number == 0:
        yield from _partials(read_task, replace(options, archive=None), contents)
        return
    for piece, runs in itertools.groupby(contents, key=lambda content: content[0]):
        tables = [_events(piece, entries, read_task, options) for _, entries in runs]
        name, ranges = f"{read_task.token(METRIC)}-{piece.shard}", [(piece.shard, piece.after, piece.until)]
        for file in encoded_files(QUEUE_METRIC, pa.concat_tables(tables), token=name, ranges=ranges):
            Archive(str(options.archive)).put(METRIC, file)


def _events(piece: IdRange, entries: Entries, read_task: ReadTask, options: PipelineOptions) -> pa.Table:
    ages = options.source.ages
    return events_of(QUEUE_METRIC, entries, shard=piece.shard, at_ms=read_task.at_ms, ages=ages).table


def _ranges(afters: Sequence[str], untils: Sequence[str], *, whole: bool) -> list[IdRange]:
    return [
        IdRange(metric=METRIC, shard=shard, after=after, until=until, whole=whole)
        for shard, (after, until) in enumerate(zip(afters, untils, strict=True))
    ]
