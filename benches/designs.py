"""Designs of a batch, in turns in one session: where events are added up, and where the archive is written.

- `behind`: one task; runs of bytes cross Spark, and a `mapInArrow` behind the source adds them up.
- `raw_rows`: two tasks; every event crosses Spark as a typed row into a `groupBy`. It writes no archive.
- `combined`: one task that adds up where it reads.
- `two_inserts`: the same with two tasks; each reads whole streams and inserts its own rows.
- `two_joined`: the same, and the driver inserts the rows of both at once.
- `cut_grouped`: two tasks that share every stream; a `groupBy` merges their sums.
- `cut_joined`: the same, and the driver merges the few rows.
- `no_archive`: as `combined`, but without an archive.
- `archive_branch`: as `no_archive`, and a second task reads the streams for the archive at the same time.

All designs read the same streams and insert the same rows; the bench checks the counts.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from redis import Redis

from benches.children import child_environment
from benches.design_batches import DESIGNS, METRIC, Backlog
from benches.pipeline import QUEUES, SHARDS, _servers
from benches.pipeline_events import Producer
from benches.process_times import processor_s
from weir.pipeline.job import PipelineOptions
from weir.pipeline.session import SessionOptions, open_session
from weir.telemetry.store import StreamStore
from weir.telemetry.stream_ids import ORIGIN
from weir.telemetry.streams import stream_key
from weir.warehouse.connection import ClickHouseConnection

BATCH_EVENTS = 400_000


def run(*, quick: bool, events: int | None = None, **_: Any) -> dict[str, Any]:
    """Land the same backlog several times with each design."""
    return asyncio.run(_measure(events or (200_000 if quick else 1_000_000), rounds=2 if quick else 5))


async def _measure(events: int, *, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        async with _servers(Path(folder)) as (redis_url, clickhouse_url):
            options = PipelineOptions(
                redis_url=redis_url, clickhouse_url=clickhouse_url, shards=SHARDS,
                checkpoint=f"{folder}/checkpoint", archive=f"{folder}/archive",
            )  # fmt: skip
            return await asyncio.to_thread(_compare, options, events, rounds)


def _compare(options: PipelineOptions, events: int, rounds: int) -> dict[str, Any]:
    tails = _produce(options.redis_url, events)
    # Spark's Python workers unpickle functions of this module.
    os.environ.update(child_environment())
    spark = open_session(SessionOptions(name="weir-bench"))
    backlog = Backlog(spark=spark, options=options, tails=tails)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in DESIGNS}
    wrong = 0
    # The first round runs on a cold JVM and does not count.
    for number in range(rounds + 1):
        for name, design in DESIGNS.items() if number % 2 else reversed(DESIGNS.items()):
            before = _landed(options)
            took = _timed(partial(design, backlog))
            wrong += abs(_landed(options) - before - events)
            found[name] += [took] if number else []
    spark.stop()
    return {**_figures(found, events), "events": events, "queues": QUEUES, "rounds": rounds, "wrong": wrong}


def _figures(found: dict[str, list[tuple[float, float]]], events: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, times in found.items():
        ratios = [first[0] / mine[0] for first, mine in zip(found["behind"], times, strict=True)]
        figures[name] = {
            "events_per_s": round(events / statistics.median(wall for wall, _ in times)),
            "ratio": round(statistics.median(ratios), 2),
            "ratio_range": [round(min(ratios), 2), round(max(ratios), 2)],
            "core_s_per_million": round(statistics.median(spent for _, spent in times) / events * 1e6, 2),
        }
    return figures


def _timed(step: Callable[[], None]) -> tuple[float, float]:
    """The wall-clock seconds of a step, and the processor seconds of all processes."""
    began, spent = time.monotonic(), processor_s()
    step()
    return time.monotonic() - began, processor_s() - spent


def _produce(redis_url: str, events: int) -> list[tuple[list[str], list[str]]]:
    """Fill the streams, and return their last ids after each half of a batch and each whole batch."""
    tails = []
    with Redis.from_url(redis_url) as redis, closing(StreamStore(redis_url)) as store:
        producer = Producer(redis, queues=QUEUES, shards=SHARDS)
        for start in range(0, events, BATCH_EVENTS):
            half = min(BATCH_EVENTS, events - start) // 2
            tails.append((_append(producer, store, half), _append(producer, store, half)))
    return tails


def _append(producer: Producer, store: StreamStore, count: int) -> list[str]:
    producer.produce(count)
    found = store.tails([stream_key(METRIC, shard) for shard in range(SHARDS)])
    return [tail.last_id if tail is not None else ORIGIN for tail in found]


def _landed(options: PipelineOptions) -> int:
    with closing(ClickHouseConnection(options.clickhouse_url)) as warehouse:
        (row,) = warehouse.rows("SELECT sum(events) AS events FROM queue_metrics_5s")
    return int(row["events"])
