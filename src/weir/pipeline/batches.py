"""Stores one batch: tasks insert final rows, the driver joins few rows here, and Spark merges the others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from weir.pipeline.definition import MetricDefinition
from weir.pipeline.landing import joined_rows
from weir.pipeline.offsets import BatchPlan
from weir.pipeline.partials import gaps_in, joined_gaps, rejects_in, rows_in
from weir.pipeline.sink import (
    MERGED_SCHEMA,
    RESULT_SCHEMA,
    SinkOptions,
    insert,
    land,
    land_merged,
    note,
    remember,
)
from weir.pipeline.transforms import merged_rows, partial_rows


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


def land_batch(partials: DataFrame, plan: BatchPlan, options: SinkOptions) -> list[Landed]:
    """Store the partials of a batch: final ones as they are, and those of cut streams after a merge."""
    if plan.cut_metrics:
        # A merge reads the partials again, and reading the streams again would cost more than keeping them.
        partials = partials.persist()
    try:
        store = partial(land, options=options, hand_rows=plan.hand_rows)
        landed = partials.mapInArrow(store, RESULT_SCHEMA).collect()
        found = [_landed(row) for row in landed]
        for metric in plan.metrics:
            found += _join(_final(landed, options.definitions[metric]), metric, plan, options)
        for metric in plan.cut_metrics:
            mine = [row for row in landed if row["metric"] == metric and not row["whole"]]
            found.append(_merge(partials, mine, metric, plan, options))
    finally:
        if plan.cut_metrics:
            partials.unpersist()
    return found


def _final(landed: Sequence[Row], definition: MetricDefinition) -> list[Row]:
    """The results of a metric whose rows were handed to the driver and need no merge."""
    return [
        row
        for row in landed
        if row["metric"] == definition.name
        and row["handed"] is not None
        and (row["whole"] or definition.plain)
    ]


def _join(handed: Sequence[Row], metric: str, plan: BatchPlan, options: SinkOptions) -> list[Landed]:
    """Insert the final rows of several tasks at once; returns the figures that this adds."""
    if not handed:
        return []
    definition, token, began_s = options.definitions[metric], plan.join_token(metric), time.monotonic()
    # `_merge` notes the gaps and rejects of cut streams.
    whole = [row for row in handed if row["whole"]]
    gaps = [gap for row in whole for gap in gaps_in(row["gaps"])]
    remember(options, gaps)
    rows = pa.concat_tables([rows_in(row["handed"]) for row in handed])
    insert(options, definition, rows, token=token)
    note(options, gaps, [one for row in whole for one in rejects_in(row["rejects"])], token=token)
    return [_further(metric, handed, rows=rows.num_rows, gaps=0, began_s=began_s)]


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
        handed = [row["handed"] for row in landed if row["events"]]
        # The choice follows from the rows of the batch alone, so a replay makes the same one.
        if None not in handed:
            rows = _insert_joined(handed, definition, options, token=token)
        else:
            rows, _ = insert_merged(partials, definition, options, token=token, partitions=plan.partitions)
    note(options, gaps, rejects, token=token)
    return _further(metric, landed, rows=rows, gaps=len(gaps), began_s=began_s)


def _insert_joined(
    handed: Sequence[bytes], definition: MetricDefinition, options: SinkOptions, *, token: str
) -> int:
    """Merge few rows here, because starting a Spark job would cost more than the merge; returns the rows."""
    if not handed:
        return 0
    rows = joined_rows(definition, pa.concat_tables([rows_in(content) for content in handed]))
    insert(options, definition, rows, token=token)
    return int(rows.num_rows)


def insert_merged(
    partials: DataFrame, definition: MetricDefinition, options: SinkOptions, *, token: str, partitions: int
) -> tuple[int, int]:
    """Merge in Spark the rows of partials that are not final, and insert them; returns rows and events."""
    merged = merged_rows(partial_rows(partials, definition), definition, partitions=partitions)
    write = partial(land_merged, options=options, definition=definition, token=token)
    landed = merged.mapInArrow(write, MERGED_SCHEMA).collect()
    return sum(row["rows"] for row in landed), sum(row["events"] for row in landed)


def _further(metric: str, landed: Sequence[Row], *, rows: int, gaps: int, began_s: float) -> Landed:
    """The figures that a join or merge adds to the figures of its tasks."""
    return Landed(
        metric=metric, events=0, rows=rows, rejected=0, gaps=gaps, newest_ms=0,
        busy_s=max((row["busy_s"] for row in landed), default=0.0) + time.monotonic() - began_s,
    )  # fmt: skip


def _landed(row: Row) -> Landed:
    figures = {name: row[name] for name in ("metric", "events", "rows", "rejected", "newest_ms", "busy_s")}
    # The gaps of cut streams are counted when they are joined.
    return Landed(**figures, gaps=len(gaps_in(row["gaps"])) if row["whole"] else 0)
