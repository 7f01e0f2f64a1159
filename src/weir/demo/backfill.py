"""The demo's past, put where a past belongs: into the archive, and from there into the tiers by a rebuild.

The rebuild runs the same transforms as the stream, on Spark. The ledger of the audit counts what came
through the streams and is not touched, so the audit of a demo says the same as any other: drift 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from weir.demo.history import HOUR_MS, PastEvent, past
from weir.demo.scenario import TENANTS
from weir.model.shards import shard_of
from weir.pipeline.archive import Archive
from weir.pipeline.definition import QUEUE_METRIC
from weir.pipeline.job import PipelineOptions
from weir.pipeline.rebuild import rebuild
from weir.telemetry.codec import pack
from weir.telemetry.columns import decode
from weir.telemetry.entries import Entries
from weir.telemetry.events import QUEUE


def backfill(spark: SparkSession, options: PipelineOptions, *, now_ms: int) -> int:
    """Give the demo's queues a past, unless the archive shows that they have one; how many events."""
    archive = Archive(str(options.archive))
    if archive.hours(QUEUE.name):
        return 0
    first_ms = now_ms
    for hour_ms, events in groupby(
        past(TENANTS, now_ms=now_ms), key=lambda one: one.at_ms // HOUR_MS * HOUR_MS
    ):
        first_ms = min(first_ms, hour_ms)
        _archive_hour(archive, list(events), hour_ms=hour_ms, shards=options.shards)
    return rebuild(spark, options, from_ms=first_ms, to_ms=now_ms, metrics=[QUEUE.name]).events[QUEUE.name]


def _archive_hour(archive: Archive, events: list[PastEvent], *, hour_ms: int, shards: int) -> None:
    for shard, mine in _by_shard(events, shards=shards):
        table = _table(mine, shard=shard)
        ranges = [(shard, f"{hour_ms - 1}-0", f"{hour_ms + HOUR_MS - 1}-0")]
        archive.write(QUEUE_METRIC, table, token=f"past-{shard}-{hour_ms}", ranges=ranges)


def _by_shard(events: Iterable[PastEvent], *, shards: int) -> Iterator[tuple[int, list[PastEvent]]]:
    found: dict[int, list[PastEvent]] = {}
    for one in events:
        found.setdefault(shard_of(one.environment, shards=shards), []).append(one)
    yield from found.items()


def _table(events: list[PastEvent], *, shard: int) -> pa.Table:
    """The events as the stream would have given them: packed, then decoded."""
    packed = [pack(QUEUE, one.event) for one in events]
    entries = Entries(
        ids=np.array([(one.at_ms, number) for number, one in enumerate(events)], np.uint64),
        lengths=np.fromiter(map(len, packed), np.uint32, len(packed)),
        data=b"".join(packed),
    )
    table = pa.Table.from_batches([decode(QUEUE, entries).events])
    table = table.append_column("at_ms", pa.array(entries.ids[:, 0]))
    return table.append_column("shard", pa.array(np.full(len(events), shard, np.uint16)))
