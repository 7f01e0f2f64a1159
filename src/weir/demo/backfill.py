"""Writes the demo's past into the archive, and from there into the tiers by a rebuild.

The rebuild runs the transforms of the stream on Spark. It does not change the ledger, which counts the events
that came through the streams, so the audit of a demo reports drift 0 like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from weir.demo.past_events import PastEvent, past
from weir.demo.past_processes import note_served_tenants, past_flushes, past_lags
from weir.demo.scenario import TENANTS, Incidents, Tenant
from weir.model.durations import HOUR_MS
from weir.model.shards import jump_hash, text_key
from weir.pipeline.archive import Archive
from weir.pipeline.definition import (
    DEFINITIONS,
    QUEUE_METRIC,
    WORKER_LAG_METRIC,
    WORKER_METRIC,
    MetricDefinition,
)
from weir.pipeline.job import PipelineOptions
from weir.pipeline.rebuild import rebuild
from weir.telemetry.codec import pack
from weir.telemetry.entries import Entries
from weir.telemetry.event_columns import decode

_QUEUE_SHARD_NAMES = 3
"""The shard of a queue's event follows from the three names of its environment, not from all dimensions."""


def write_past(
    options: PipelineOptions, incidents: Incidents, *, now_ms: int, tenants: Sequence[Tenant] = TENANTS
) -> int:
    """Write the past of queues and processes into the archive, and return its beginning.

    The files of an earlier demo that was interrupted here are removed first.
    """
    archive = Archive(str(options.archive))
    for metric in DEFINITIONS:
        for hour_ms in archive.hours(metric.name):
            archive.remove_hour(metric.name, hour_ms)
    events = list(past(tenants, now_ms=now_ms, incidents=incidents))
    span = _Span(shards=options.shards, end_ms=now_ms)
    _archive(archive, QUEUE_METRIC, events, span)
    _archive(archive, WORKER_METRIC, past_flushes(events, now_ms=now_ms), span)
    _archive(archive, WORKER_LAG_METRIC, past_lags(events, now_ms=now_ms), span)
    asyncio.run(note_served_tenants(options.redis_url))
    return events[0].at_ms


def land_past(spark: SparkSession, options: PipelineOptions, *, from_ms: int, now_ms: int) -> dict[str, int]:
    """Rebuild every tier from the past, and return the number of events per metric."""
    metrics = [metric.name for metric in DEFINITIONS]
    return rebuild(spark, options, from_ms=from_ms, to_ms=now_ms, metrics=metrics).events


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    shards: int
    end_ms: int
    """The end of the past; the rest of its last hour belongs to live events."""


def _archive(archive: Archive, metric: MetricDefinition, events: Iterable[PastEvent], span: _Span) -> None:
    for hour_ms, found in groupby(events, key=lambda one: one.at_ms // HOUR_MS * HOUR_MS):
        for shard, mine in _by_shard(metric, found, shards=span.shards):
            table = _table(metric, mine, shard=shard)
            until_ms = min(hour_ms + HOUR_MS, span.end_ms) - 1
            ranges = [(shard, f"{hour_ms - 1}-0", f"{until_ms}-0")]
            archive.write(metric, table, token=f"past-{shard}-{hour_ms}", ranges=ranges)


def _by_shard(
    metric: MetricDefinition, events: Iterable[PastEvent], *, shards: int
) -> Iterator[tuple[int, list[PastEvent]]]:
    names = _QUEUE_SHARD_NAMES if metric is QUEUE_METRIC else None
    found: dict[int, list[PastEvent]] = {}
    for one in events:
        shard = jump_hash(text_key(*one.event.dimensions[:names]), shards)
        found.setdefault(shard, []).append(one)
    yield from found.items()


def _table(metric: MetricDefinition, events: list[PastEvent], *, shard: int) -> pa.Table:
    """The events as the stream would deliver them: packed, then decoded."""
    packed = [pack(metric.kind, one.event) for one in events]
    entries = Entries(
        ids=np.array([(one.at_ms, number) for number, one in enumerate(events)], np.uint64),
        lengths=np.fromiter(map(len, packed), np.uint32, len(packed)),
        data=b"".join(packed),
    )
    table = pa.Table.from_batches([decode(metric.kind, entries).events])
    table = table.append_column("at_ms", pa.array(entries.ids[:, 0]))
    return table.append_column("shard", pa.array(np.full(len(events), shard, np.uint16)))
