"""Plain rows through the pipeline: events with 12 fields, 3 of them texts, and one row per event.

    await make_tables_of_attempts(clickhouse_url)
    async with <a pipeline with WEIR_PIPELINE__METRICS=SETTING>:
        measure_plain_rows(redis_url, clickhouse_url, rows=400_000, warm_rows=100_000)

`python -m benches.pipeline_plain_rows` does all of it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from redis import Redis

from weir.metrics import EventKind, Field, MetricDefinition, MetricEvent, TextField
from weir.pipeline.metric_migration import make_tables
from weir.telemetry.codec import pack
from weir.telemetry.events import STREAM_FIELD
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import stream_key
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.tables import TierRetention

SETTING = "benches.pipeline_plain_rows:definitions"
SHARDS = 4
QUEUES = 1_000
_WAIT_S = 600.0
_BATCH = 1_000

ATTEMPT = EventKind(
    name="bench_attempt",
    dimensions=("environment", "queue"),
    fields=(
        Field(name="step", width=1),
        Field(name="attempt", width=2),
        Field(name="priority", width=1),
        Field(name="enqueued_ms", width=8),
        Field(name="started_ms", width=8),
        Field(name="took_ms", width=4),
        Field(name="waited_ms", width=4),
        Field(name="payload_bytes", width=4),
        Field(name="retry_ms", width=4),
    ),
    texts=(
        TextField(name="message_id", max_bytes=16, binary=True),
        TextField(name="key", max_bytes=255),
        TextField(name="error", max_bytes=500),
    ),
)
definitions = [MetricDefinition(kind=ATTEMPT, plain=True)]


async def make_tables_of_attempts(clickhouse_url: str) -> None:
    """Make the tables; call this before the pipeline starts."""

    def make() -> None:
        with closing(ClickHouseConnection(clickhouse_url)) as connection:
            make_tables(connection, definitions, TierRetention())

    await asyncio.to_thread(make)


def measure_plain_rows(redis_url: str, clickhouse_url: str, *, rows: int, warm_rows: int) -> dict[str, Any]:
    """Rows per second of a backlog in a warm pipeline, and by how much their number is wrong."""
    numbers = itertools.count()
    store = StreamStore(redis_url)
    with closing(ClickHouseConnection(clickhouse_url)) as warehouse, Redis.from_url(redis_url) as redis:
        for _ in range(2):
            _move_backlog(redis, store, warehouse, numbers, warm_rows // 2)
        seconds = _move_backlog(redis, store, warehouse, numbers, rows)
        (found,) = warehouse.rows(
            "SELECT count() AS rows, uniqExact(message_id) AS messages, "
            f"uniqExact(shard, stream_at, stream_sequence) AS ids FROM {definitions[0].plain_table}"
        )
    store.close()
    wanted = next(numbers)
    return {
        "plain_rows_per_s": round(rows / seconds),
        "plain_rows": rows,
        "plain_rows_wrong": sum(abs(wanted - count) for count in found.values()),
    }


def _move_backlog(
    redis: Redis,
    store: StreamStore,
    warehouse: ClickHouseConnection,
    numbers: itertools.count[int],
    count: int,
) -> float:
    """Append events while the pipeline is held; returns the seconds from its release until all landed."""
    before = _landed(warehouse)
    store.hold(_WAIT_S, holder="bench")
    for start in range(0, count, _BATCH):
        pipeline = redis.pipeline(transaction=False)
        for number in itertools.islice(numbers, min(_BATCH, count - start)):
            pipeline.xadd(stream_key(ATTEMPT.name, number % SHARDS), {STREAM_FIELD: _packed(number)})
        pipeline.execute()
    store.release(holder="bench")
    began = time.monotonic()
    while _landed(warehouse) < before + count:
        if time.monotonic() - began > _WAIT_S:
            raise TimeoutError("the rows did not land in time")
        time.sleep(0.02)
    return time.monotonic() - began


def _landed(warehouse: ClickHouseConnection) -> int:
    (row,) = warehouse.rows(f"SELECT count() AS rows FROM {definitions[0].plain_table}")
    return int(row["rows"])


def _packed(number: int) -> bytes:
    failed = number % 10 == 0
    event = MetricEvent(
        dimensions=(f"env-{number % 64}", f"queue:{number % QUEUES}"),
        values={
            "step": number % 6,
            "attempt": 1 + number % 3,
            "priority": number % 10,
            "enqueued_ms": 1_790_000_000_000 + number,
            "started_ms": 1_790_000_000_500 + number,
            "took_ms": number % 30_000,
            "waited_ms": number % 60_000,
            "payload_bytes": 200 + number % 5_000,
            "retry_ms": 1_000 if failed else 0,
        },
        texts={
            "message_id": number.to_bytes(16),
            "key": f"customer-{number % 50_000}",
            "error": f"ConnectionError: the shop {number % 200} does not answer" if failed else "",
        },
    )
    return pack(ATTEMPT, event)


async def _measure(rows: int) -> dict[str, Any]:
    from benches.pipeline import QUICK, _Bench, _servers

    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        async with _servers(Path(folder)) as (redis_url, clickhouse_url):
            await make_tables_of_attempts(clickhouse_url)
            bench = _Bench(
                redis_url=redis_url, clickhouse_url=clickhouse_url, folder=Path(folder), size=QUICK
            )
            async with bench.pipeline(WEIR_PIPELINE__METRICS=SETTING):
                return await asyncio.to_thread(
                    measure_plain_rows, redis_url, clickhouse_url, rows=rows, warm_rows=rows // 4
                )


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measure(int(sys.argv[1]) if sys.argv[1:] else 400_000))))
