"""Rebuilds the tiers from the archive over any span of hours, with the transforms of the streaming job.

Every file of the span is read to its end and counted first. Then the span is deleted from every tier and
filled again while the pipeline pauses. If a rebuild is interrupted, run it again. The ledger does not change:
it counts what arrived, not what is kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from weir.errors import InvalidInput
from weir.model.durations import HOUR_MS
from weir.pipeline.archive import Archive, within
from weir.pipeline.batches import insert_merged
from weir.pipeline.coverage import TASKS_PER_ROUND, ArchiveSurvey, gaps_of, require_coverage, survey
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.job import PipelineOptions
from weir.pipeline.leases import Prolong
from weir.pipeline.partials import SPARK_SCHEMA, Partial, record_batch
from weir.pipeline.plain_rows import rows_of
from weir.pipeline.quiet import quiet
from weir.pipeline.rebuild_tasks import RebuildTask
from weir.pipeline.sink import RESULT_SCHEMA, SinkOptions, land
from weir.pipeline.upkeep import archive_lease
from weir.telemetry.store import StreamStore
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.ingest import GapRow, insert_gaps

_TASKS_SCHEMA = "token string, whole boolean, pieces string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """How many files a rebuild read, and the events that it wrote per metric."""

    from_ms: int
    to_ms: int
    files: int
    events: dict[str, int]
    gaps: int
    """Gaps that `force` left: one per hour, shard and metric of which the archive lacks events."""


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

    Damaged files, and hours with fewer events in the archive than in the tiers, are refused; with `force`
    they are recorded as gaps.
    """
    if options.archive is None:
        raise InvalidInput("there is no archive to rebuild from; set `WEIR_PIPELINE__ARCHIVE`")
    begin, end = whole_hours(from_ms, to_ms)
    chosen = [one for one in options.definitions if not metrics or one.name in metrics]
    # A new token per run: with the tokens of an earlier rebuild, ClickHouse would ignore the inserts.
    run, files, gaps, events = uuid4().hex, 0, list[GapRow](), {}
    with (
        closing(StreamStore(options.redis_url)) as store,
        closing(ClickHouseConnection(options.clickhouse_url, timeout_s=600)) as warehouse,
        archive_lease(store, wait_s=20) as prolong_lease,
        quiet(store, wait_s=20) as require_still,
    ):

        def prolong() -> None:
            require_still()
            prolong_lease()

        # Read all files of all metrics before the first is cleared: a refusal leaves every tier as it was.
        surveys = dict[str, ArchiveSurvey]()
        for one in chosen:
            found = Archive(options.archive).files(one.name, from_ms=begin, to_ms=end)
            surveys[one.name] = survey(spark, options.archive, one, found, prolong=prolong)
            files += len(found) - len(surveys[one.name].damaged)
        for one in chosen:
            if force:
                gaps += gaps_of(warehouse, one, surveys[one.name], (begin, end), shards=options.shards)
            else:
                require_coverage(warehouse, one, surveys[one.name], (begin, end))
        # First the gaps: if the rebuild is interrupted, nothing tells of the lost events any more.
        insert_gaps(warehouse, gaps, token=run, now_ms=time.time_ns() // 1_000_000)
        for one in chosen:
            prolong()
            clear(warehouse, one, from_ms=begin, to_ms=end)
            tasks = surveys[one.name].tasks
            events[one.name] = _refill(spark, options.sink, one, tasks, run=run, prolong=prolong)
        # A batch or another process that came in between may have changed the tiers or the archive.
        prolong()
    return Rebuilt(from_ms=begin, to_ms=end, files=files, events=events, gaps=len(gaps))


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
    tasks: Sequence[RebuildTask],
    *,
    run: str,
    prolong: Prolong,
) -> int:
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
