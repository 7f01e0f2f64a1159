"""The streaming job, which joins the source, the transforms and the sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from weir.pipeline.batches import Landed, land_batch
from weir.pipeline.decoding import Ages
from weir.pipeline.definition import DEFINITIONS, MetricDefinition, by_name
from weir.pipeline.planning import READ_TASK_EVENTS
from weir.pipeline.sink import SinkOptions
from weir.pipeline.source import FORMAT, SourceOptions, StreamsDataSource, planned_batch
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
    # A week longer than the minute tier keeps its rows by default.
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


def _run_batch(partials: DataFrame, number: int, *, options: PipelineOptions, observe: Observe) -> None:
    observe(number, land_batch(partials, planned_batch(options.source), options.sink))
