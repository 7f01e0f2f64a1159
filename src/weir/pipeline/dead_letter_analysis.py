"""Groups tens of millions of dead letters in Spark and computes the trend of each group.

The source cuts the table into ranges of arrival, which executors read in parallel. Groups follow from the
current rules, so they also show how the stored groups would look after a change of the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from weir.deadletters.export import COLUMNS, ExportRange, ranges, read_range
from weir.deadletters.fingerprint import fingerprint
from weir.model.durations import HOUR_MS

NAME = "weir_dead_letters"
DAY_H = 24
_SCHEMA = pa.schema([(name, pa.int64() if name.endswith("_ms") else pa.string()) for name in COLUMNS])
_DDL = ", ".join(f"{name} {'BIGINT' if name.endswith('_ms') else 'STRING'}" for name in COLUMNS)
_LABELLED = "fingerprint STRING, template STRING, tenant STRING, queue STRING, hour BIGINT, deaths BIGINT"


class ExportPartition(InputPartition):
    def __init__(self, part: ExportRange) -> None:
        super().__init__(0)
        self.part = part


class DeadLetterSource(DataSource):
    """`spark.read.format("weir_dead_letters")` with the options `url` and `partitions`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return _DDL

    def reader(self, schema: Any) -> DeadLetterReader:
        return DeadLetterReader(url=self.options["url"], parts=int(self.options.get("partitions", "8")))


class DeadLetterReader(DataSourceReader):
    """Plans ranges on the driver; opens PostgreSQL inside `read`, on the executor."""

    def __init__(self, *, url: str, parts: int) -> None:
        self._url = url
        self._parts = parts

    def partitions(self) -> list[InputPartition]:
        return [ExportPartition(part) for part in ranges(self._url, parts=self._parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ExportPartition)
        for rows in read_range(self._url, partition.part):
            columns = list(zip(*rows, strict=True))
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, type=field.type) for column, field in zip(columns, _SCHEMA, strict=True)],
                schema=_SCHEMA,
            )


def hourly_groups(letters: DataFrame) -> DataFrame:
    """Deaths by fingerprint, tenant, queue and hour."""
    # Each batch is added up in its worker, so that only counts are shuffled.
    partial = letters.mapInArrow(_count_deaths, _LABELLED)
    keys = ("fingerprint", "template", "tenant", "queue", "hour")
    return partial.groupBy(*keys).agg(fn.sum("deaths").alias("deaths"))


def group_trends(hourly: DataFrame) -> DataFrame:
    """One row per group: deaths, queues, tenants, first, last and busiest hour, and the last two days."""
    newest = hourly.agg(fn.max("hour").alias("newest"))
    by_hour = hourly.groupBy("fingerprint", "hour").agg(fn.sum("deaths").alias("n")).crossJoin(newest)
    recent = fn.col("hour") > fn.col("newest") - DAY_H
    before = ~recent & (fn.col("hour") > fn.col("newest") - 2 * DAY_H)
    curves = by_hour.groupBy("fingerprint").agg(
        fn.max("n").alias("busiest_hour"),
        fn.sum(fn.when(recent, fn.col("n")).otherwise(0)).alias("last_day"),
        fn.sum(fn.when(before, fn.col("n")).otherwise(0)).alias("day_before"),
    )
    totals = hourly.groupBy("fingerprint").agg(
        fn.min("template").alias("template"),
        fn.sum("deaths").alias("dead"),
        fn.countDistinct("tenant", "queue").alias("queues"),
        fn.countDistinct("tenant").alias("tenants"),
        (fn.min("hour") * HOUR_MS).alias("first_hour_ms"),
        (fn.max("hour") * HOUR_MS).alias("last_hour_ms"),
    )
    return totals.join(curves, "fingerprint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A group with its figures; `trend` is the growth of the last day over the day before."""

    fingerprint: str
    template: str
    dead: int
    queues: int
    tenants: int
    first_hour_ms: int
    last_hour_ms: int
    busiest_hour: int
    last_day: int
    day_before: int

    @property
    def trend(self) -> float:
        return (self.last_day - self.day_before) / max(self.day_before, 1)


def analyse(
    session: SparkSession, *, url: str, partitions: int, limit: int, output: Path | None = None
) -> dict[str, Any]:
    """Group all dead letters; returns the largest groups and the totals.

    With `output`, all hours and groups are written there as Parquet.
    """
    session.dataSource.register(DeadLetterSource)
    letters = session.read.format(NAME).options(url=url, partitions=str(partitions)).load()
    hourly = hourly_groups(letters).cache()
    groups = group_trends(hourly).cache()
    if output is not None:
        hourly.write.mode("overwrite").parquet(str(output / "hours"))
        groups.write.mode("overwrite").parquet(str(output / "groups"))
    totals = groups.agg(fn.sum("dead").alias("letters"), fn.count("*").alias("kinds")).collect()[0]
    largest = groups.orderBy(fn.desc("dead"), "fingerprint").limit(limit).collect()
    return {
        "letters": totals["letters"] or 0,
        "kinds": totals["kinds"],
        "groups": [_document(row.asDict()) for row in largest],
    }


def _document(row: Mapping[str, Any]) -> dict[str, Any]:
    trend = Trend(**row)
    return {**asdict(trend), "trend": round(trend.trend, 4)}


def _count_deaths(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compute the fingerprint of each dead letter, and count equal ones within a batch."""
    for batch in batches:
        counts: dict[tuple[str, str, str, str, int], int] = {}
        columns = (batch.column(name).to_pylist() for name in COLUMNS)
        for organization, project, environment, queue, reason, error, died_at_ms in zip(
            *columns, strict=True
        ):
            label = fingerprint(error, reason=reason)
            # Lengths first: names may hold any character, so joining alone could make two tenants equal.
            tenant = f"{len(organization)} {len(project)} {organization}{project}{environment}"
            key = (label.value, label.template, tenant, queue, died_at_ms // HOUR_MS)
            counts[key] = counts.get(key, 0) + 1
        rows = [(*key, count) for key, count in counts.items()]
        names = [part.split()[0] for part in _LABELLED.split(", ")]
        yield pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
