"""The programs with which the pipeline is compared: a plain Python consumer group, and a bare reader."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
from redis import Redis

from weir.pipeline.definition import QUEUE_METRIC, column_of
from weir.telemetry.codec import MetricEvent, unpack
from weir.telemetry.entries import Entries
from weir.telemetry.events import QUEUE, Aggregate
from weir.telemetry.store import StreamStore
from weir.telemetry.stream_ids import ORIGIN, StreamId, parse_id
from weir.warehouse.connection import ClickHouseConnection

POLL_S = 1.0
BATCH = 1_000
_GROUP = "plain"


class PlainConsumer:
    """Reads 1,000 events with XREADGROUP, adds them up in dictionaries, inserts, XACKs; shard by shard."""

    def __init__(self, redis: Redis, warehouse: ClickHouseConnection, keys: Sequence[str]) -> None:
        self._redis = redis
        self._warehouse = warehouse
        self._keys = keys
        for key in keys:
            redis.xgroup_create(key, _GROUP, id="0", mkstream=True)

    def per_second(self, *, seconds: float, poll_s: float) -> float:
        """Events per second over some seconds, with a poll every `poll_s`; 0 polls without a pause."""
        began, done = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            polled = time.monotonic()
            taken = sum(self._poll(key) for key in self._keys)
            done += taken
            if not taken and not poll_s:
                break
            time.sleep(max(poll_s - (time.monotonic() - polled), 0))
        return done / (time.monotonic() - began)

    def close(self) -> None:
        for key in self._keys:
            self._redis.xgroup_destroy(key, _GROUP)

    def _poll(self, key: str) -> int:
        reply: Any = self._redis.xreadgroup(_GROUP, "c", {key: ">"}, count=BATCH)
        entries = reply[0][1] if reply else []
        if entries:
            self._warehouse.insert(QUEUE_METRIC.landing, _rows(entries), token=uuid4().hex)
            self._redis.xack(key, _GROUP, *(entry_id for entry_id, _ in entries))
        return len(entries)


def _rows(entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> pa.Table:
    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    for entry_id, fields in entries:
        event, at = unpack(QUEUE, fields[b"e"]), parse_id(entry_id.decode())
        bucket = at[0] // 5_000 * 5
        row = rows.setdefault((bucket, *event.dimensions), {})
        _add(row, event, at, bucket)
    return pa.Table.from_pylist(list(rows.values()))


def _add(row: dict[str, Any], event: MetricEvent, at: StreamId, bucket: int) -> None:
    if not row:
        row |= dict(zip(QUEUE.dimensions, event.dimensions, strict=True))
        row |= {"bucket_start": bucket, "shard": 0, "rebuilt": 0, "events": 0, "wait_ms": []}
    row["last_at"], row["last_sequence"] = datetime.fromtimestamp(at[0] / 1_000, UTC), at[1]
    row["events"] += 1
    row["wait_ms"] += event.samples
    for field in QUEUE.fields:
        value = event.values[field.name]
        for aggregate in field.aggregates:
            name = column_of(field, aggregate)
            if aggregate is Aggregate.SUM:
                row[name] = row.get(name, 0) + value
            elif aggregate is Aggregate.MAX:
                row[name] = max(row.get(name, 0), value)
            else:
                row[name] = value


def read_per_second(url: str, keys: Sequence[str]) -> float:
    """How fast one process can read the streams when it does nothing else."""
    store = StreamStore(url)
    began, count = time.perf_counter(), 0
    for key in keys:
        tail = store.tails([key])[0]
        if tail is not None:
            for content in store.read(key, after=ORIGIN, until=tail.last_id):
                count += len(content) if isinstance(content, Entries) else 0
    elapsed = time.perf_counter() - began
    store.close()
    return count / elapsed
