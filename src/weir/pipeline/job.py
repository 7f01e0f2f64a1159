"""The streaming job, which joins the source, the transforms and the sink."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from weir.pipeline.decoding import Ages
from weir.pipeline.definition import DEFINITIONS, MetricDefinition, by_name
from weir.pipeline.offsets import BatchPlan
from weir.pipeline.partials import gaps_in, joined_gaps, rejects_in
from weir.pipeline.planning import READ_TASK_EVENTS
from weir.pipeline.sink import MERGED_SCHEMA, RESULT_SCHEMA, SinkOptions, land, land_merged, note, remember
from weir.pipeline.source import FORMAT, SourceOptions, StreamsDataSource, planned_batch, settle_planned
from weir.pipeline.transforms import merged_rows, partial_rows
from weir.warehouse.tables import TierRetention

QUERY = "weir-metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """The options of a pipeline."""

    redis_url: str
    clickhouse_url: str
    checkpoint: str
    archive: str | None
    shards: int
    definitions: tuple[MetricDefinition, ...] = DEFINITIONS
    trigger_ms: int = 500
    max_events: int = 400_000
    max_read_tasks: int = 0
    """Tasks that read a batch; 0 means at most two per shard and one per core."""
    read_task_events: int = READ_TASK_EVENTS
    retention: TierRetention = field(default_factory=TierRetention)
    keep_archive_days: int = 38
    """0 keeps every hour."""
    owner: str | None = None
    """The holder of the lease on the streams; None plans without a lease."""
    audit_period_s: float = 600.0
    """0 means never."""

    @property
    def source(self) -> SourceOptions:
        return SourceOptions(
            redis_url=self.redis_url,
            clickhouse_url=self.clickhouse_url,
            definitions=by_name(self.definitions),
            ages=Ages.of(self.retention),
            archived=self.archive is not None,
            shards=self.shards,
            max_events=self.max_events,
            max_read_tasks=self.max_read_tasks,
            read_task_events=self.read_task_events,
            owner=self.owner,
        )

    @property
    def sink(self) -> SinkOptions:
        return SinkOptions(
            clickhouse_url=self.clickhouse_url,
            archive=self.archive,
            definitions=by_name(self.definitions),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """The figures of one metric in one read task that landed."""

    metric: str
    events: int
    rows: int
    rejected: int
    gaps: int
    newest_ms: int
    busy_s: float


Observe = Callable[[int, Sequence[Landed]], None]


def start(
    spark: SparkSession, options: PipelineOptions, *, observe: Observe, available_now: bool = False
) -> StreamingQuery:
    """Start the query; with `available_now`, it ends at the entries that the streams hold at this moment."""
    spark.dataSource.register(StreamsDataSource)
    options = replace(options, max_read_tasks=read_tasks(options, spark.sparkContext.defaultParallelism))
    partials = spark.readStream.format(FORMAT).option("options", options.source.as_text()).load()
    writer = (
        partials.writeStream.queryName(QUERY)
        .option("checkpointLocation", options.checkpoint)
        .foreachBatch(partial(_run_batch, options=options, observe=observe))
    )
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{options.trigger_ms} milliseconds").start()


def read_tasks(options: PipelineOptions, cores: int) -> int:
    """How many tasks read a batch: as the options say, or at most two per shard and one per core."""
    return options.max_read_tasks or max(1, min(2 * options.shards, cores))


def drain(spark: SparkSession, options: PipelineOptions, *, observe: Observe) -> None:
    """Land everything that the streams hold now."""
    start(spark, options, observe=observe, available_now=True).awaitTermination()
    # Spark confirms a batch to its source only when it plans the next one.
    settle_planned(options.source)


def _run_batch(partials: DataFrame, number: int, *, options: PipelineOptions, observe: Observe) -> None:
    plan = planned_batch(options.source)
    if plan.cut_metrics:
        # They are needed twice, and reading the streams again would cost more than keeping them.
        partials = partials.persist()
    try:
        landed = partials.mapInArrow(partial(land, options=options.sink), RESULT_SCHEMA).collect()
        found = [_landed(row) for row in landed]
        for metric in plan.cut_metrics:
            mine = [row for row in landed if row["metric"] == metric and not row["whole"]]
            found.append(_merge(partials, mine, metric, plan, options.sink))
    finally:
        if plan.cut_metrics:
            partials.unpersist()
    observe(number, found)


def _merge(
    partials: DataFrame, landed: Sequence[Row], metric: str, plan: BatchPlan, options: SinkOptions
) -> Landed:
    """Merge and insert the rows of a metric's cut streams; returns the figures that this adds."""
    definition, token = options.definitions[metric], plan.merge_token(metric)
    began_s = time.monotonic()
    gaps = joined_gaps(gap for row in landed for gap in gaps_in(row["gaps"]))
    rejects = [reject for row in landed for reject in rejects_in(row["rejects"])]
    remember(options, gaps)
    rows = 0
    if not definition.plain:
        merged = merged_rows(partial_rows(partials, definition), definition, partitions=plan.partitions)
        write = partial(land_merged, options=options, definition=definition, token=token)
        rows = sum(row["rows"] for row in merged.mapInArrow(write, MERGED_SCHEMA).collect())
    note(options, gaps, rejects, token=token)
    return Landed(
        metric=metric, events=0, rows=rows, rejected=0, gaps=len(gaps), newest_ms=0,
        busy_s=max((row["busy_s"] for row in landed), default=0.0) + time.monotonic() - began_s,
    )  # fmt: skip


def _landed(row: Row) -> Landed:
    figures = {name: row[name] for name in ("metric", "events", "rows", "rejected", "newest_ms", "busy_s")}
    # The gaps of cut streams are counted when they are joined.
    return Landed(**figures, gaps=len(gaps_in(row["gaps"])) if row["whole"] else 0)
