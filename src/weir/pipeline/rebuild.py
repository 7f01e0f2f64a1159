"""Rebuilds the tiers from the archive over any span of hours, with the transforms of the streaming job.

The span is deleted from every tier and filled again while the pipeline pauses. If a rebuild is interrupted,
run it again. The ledger does not change: it counts what arrived, not what is kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from weir.errors import InvalidInput
from weir.model.durations import HOUR_MS
from weir.pipeline.archive import Archive, ArchiveFile, covered_once, within
from weir.pipeline.batches import insert_merged
from weir.pipeline.coverage import require_coverage
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.job import PipelineOptions
from weir.pipeline.leases import Prolong
from weir.pipeline.partials import SPARK_SCHEMA, Partial, record_batch
from weir.pipeline.plain_rows import rows_of
from weir.pipeline.quiet import quiet
from weir.pipeline.rebuild_tasks import RebuildTask, SizedPiece, rebuild_tasks
from weir.pipeline.sink import RESULT_SCHEMA, SinkOptions, land
from weir.pipeline.upkeep import archive_lease
from weir.telemetry.store import StreamStore
from weir.telemetry.stream_ids import parse_id
from weir.warehouse.connection import ClickHouseConnection

TASKS_PER_ROUND = 64
"""Tasks that Spark runs before the pause and the lease are checked again."""
EVENT_BYTES = 128
"""Bytes of a file that count as one event. Only events of the log take more, so this bounds their tasks."""
_TASKS_SCHEMA = "token string, whole boolean, pieces string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """How many files a rebuild read, and the events that it wrote per metric."""

    from_ms: int
    to_ms: int
    files: int
    events: dict[str, int]


def rebuild(
    spark: SparkSession,
    options: PipelineOptions,
    *,
    from_ms: int,
    to_ms: int,
    metrics: Sequence[str] = (),
    force: bool = False,
) -> Rebuilt:
    """Replace every hour that the span from `from_ms` to before `to_ms` touches, in all tiers of the metrics.

    Hours with fewer events in the archive than in the tiers are refused, unless `force` is set.
    """
    if options.archive is None:
        raise InvalidInput("there is no archive to rebuild from; set `WEIR_PIPELINE__ARCHIVE`")
    begin, end = whole_hours(from_ms, to_ms)
    chosen = [one for one in options.definitions if not metrics or one.name in metrics]
    # A new token per run: with the tokens of an earlier rebuild, ClickHouse would ignore the inserts.
    run, files, events = uuid4().hex, 0, {}
    with (
        closing(StreamStore(options.redis_url)) as store,
        closing(ClickHouseConnection(options.clickhouse_url, timeout_s=600)) as warehouse,
        archive_lease(store, wait_s=20) as prolong_lease,
        quiet(store, wait_s=20) as require_still,
    ):

        def prolong() -> None:
            require_still()
            prolong_lease()

        found = {
            one.name: Archive(options.archive).files(one.name, from_ms=begin, to_ms=end) for one in chosen
        }
        # Check all metrics before the first is cleared: a refusal must leave every tier as it was.
        if not force:
            for definition in chosen:
                require_coverage(warehouse, options.archive, definition, found[definition.name], (begin, end))
        for definition in chosen:
            mine = found[definition.name]
            files += len(mine)
            prolong()
            clear(warehouse, definition, from_ms=begin, to_ms=end)
            events[definition.name] = _refill(spark, options.sink, definition, mine, run=run, prolong=prolong)
        # A batch or another process that came in between may have changed the tiers or the archive.
        prolong()
    return Rebuilt(from_ms=begin, to_ms=end, files=files, events=events)


def whole_hours(from_ms: int, to_ms: int) -> tuple[int, int]:
    """The hours that a span touches, as their start and end; an empty span is refused."""
    if to_ms <= from_ms:
        raise InvalidInput("the span is empty; `--to` must be later than `--from`")
    return from_ms // HOUR_MS * HOUR_MS, -(-to_ms // HOUR_MS) * HOUR_MS


def clear(warehouse: ClickHouseConnection, definition: MetricDefinition, *, from_ms: int, to_ms: int) -> None:
    """Remove a span of hours from every tier."""
    span = {"from_s": from_ms // 1_000, "to_s": to_ms // 1_000}
    for table in definition.tiers:
        warehouse.command(
            f"DELETE FROM {table} WHERE bucket_start >= toDateTime({{from_s:UInt32}}, 'UTC') "
            "AND bucket_start < toDateTime({to_s:UInt32}, 'UTC') SETTINGS lightweight_deletes_sync = 2",
            span,
        )


def _refill(
    spark: SparkSession,
    sink: SinkOptions,
    definition: MetricDefinition,
    files: Sequence[ArchiveFile],
    *,
    run: str,
    prolong: Prolong,
) -> int:
    tasks = list(rebuild_tasks(_hours(sink, files), mergeable=not definition.plain))
    total = 0
    for start in range(0, len(tasks), TASKS_PER_ROUND):
        prolong()
        mine = tasks[start : start + TASKS_PER_ROUND]
        token = f"rebuild-{run}-{definition.name}-{start}"
        total += _land_whole(spark, sink, definition, [one for one in mine if one.whole], token=token)
        total += _land_cut(spark, sink, definition, [one for one in mine if not one.whole], token=token)
    return total


def _land_whole(
    spark: SparkSession,
    sink: SinkOptions,
    definition: MetricDefinition,
    tasks: Sequence[RebuildTask],
    *,
    token: str,
) -> int:
    """Insert the rows of tasks that share no hour; returns their events."""
    if not tasks:
        return 0
    partials = _partials(spark, sink, definition, tasks, token=token)
    landed = partials.mapInArrow(partial(land, options=sink), RESULT_SCHEMA)
    return sum(row["events"] for row in landed.select("events").collect())


def _land_cut(
    spark: SparkSession,
    sink: SinkOptions,
    definition: MetricDefinition,
    tasks: Sequence[RebuildTask],
    *,
    token: str,
) -> int:
    """Merge and insert the rows of tasks that share an hour; returns their events."""
    if not tasks:
        return 0
    partials = _partials(spark, sink, definition, tasks, token=token)
    partitions = min(len(tasks), spark.sparkContext.defaultParallelism)
    _, events = insert_merged(partials, definition, sink, token=f"{token}-merge", partitions=partitions)
    return events


def _partials(
    spark: SparkSession,
    sink: SinkOptions,
    definition: MetricDefinition,
    tasks: Sequence[RebuildTask],
    *,
    token: str,
) -> DataFrame:
    """The events of each task's files, added up where they are read, as the read tasks of a batch do it."""
    rows = [(f"{token}-{number}", one.whole, json.dumps(one.pieces)) for number, one in enumerate(tasks)]
    frame = spark.createDataFrame(rows, _TASKS_SCHEMA).repartition(len(rows))
    return frame.mapInArrow(partial(_added_up, options=sink, definition=definition), SPARK_SCHEMA)


def _hours(sink: SinkOptions, files: Sequence[ArchiveFile]) -> Iterator[list[SizedPiece]]:
    """The files of each hour with the ranges that they contribute, because files of one hour may overlap."""
    archive = Archive(str(sink.archive))
    for _, grouped in groupby(files, key=lambda file: file.folder):
        of_hour = {file.path: file for file in grouped}
        counting = covered_once([(path, archive.ranges(path)) for path in of_hour])
        pieces = [(piece, _weight(archive, of_hour[piece[0]])) for piece in counting if piece[1]]
        # In stream order: tasks that share an hour then share few buckets of it.
        yield sorted(pieces, key=lambda sized: min(parse_id(after) for _, after, _ in sized[0][1]))


def _weight(archive: Archive, file: ArchiveFile) -> int:
    """How many events a file counts as; payloads make the events of the log large."""
    return max(archive.rows(file.path), file.size // EVENT_BYTES)


def _added_up(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, *, definition: MetricDefinition
) -> Iterator[pa.RecordBatch]:
    """One partial per task."""
    archive = Archive(str(options.archive))
    for batch in batches:
        for task in batch.to_pylist():
            began_s = time.time()
            events = pa.concat_tables(
                [
                    within(archive.read(path, definition.kind), ranges)
                    for path, ranges in json.loads(task["pieces"])
                ]
            )
            found = Partial(
                metric=definition.name, token=task["token"], whole=task["whole"], began_s=began_s,
                events=events.num_rows, newest_ms=0, rejects=(), gaps=(),
                rows=rows_of(definition, events, rebuilt=True), files=(),
            )  # fmt: skip
            yield record_batch(found)
