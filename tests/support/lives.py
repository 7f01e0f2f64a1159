"""Reads the lives that a Redis broker appended to its stream, and writes lives into a warehouse."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from uuid import UUID

import numpy as np
import orjson
import pyarrow as pa

from support.streams import event_bytes
from weir.broker.redis import RedisBroker
from weir.model.durations import SECOND_MS
from weir.model.inspection import WaitParts
from weir.model.lives import Life
from weir.model.logged import LoggedMessage
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.telemetry.codec import MetricEvent, unpack
from weir.telemetry.events import LIFE, LOG, EventKind
from weir.telemetry.life_columns import find_lives, life_columns
from weir.telemetry.life_reader import read_life
from weir.telemetry.log_bodies import split_bodies
from weir.telemetry.streams import stream_key
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.tables import LIVES
from weir.warehouse.tables import LOG as LOG_TABLE


def lives_of(event: MetricEvent) -> list[Life]:
    """The lives in one event of the kind `life`."""
    organization, project, environment, queue = event.dimensions
    ref = QueueRef(organization=organization, project=project, environment=environment, queue=queue)
    records = pa.array([event.texts["records"]], pa.binary())
    found = find_lives(records, np.array([event.values["lives"]], np.uint32))
    if found.broken.any():
        raise ValueError("the event holds lives that cannot be read")
    return [read_life(ref, row) for row in life_columns(found).to_pylist()]


def logged_of(event: MetricEvent) -> list[LoggedMessage]:
    """The messages in one event of the kind `log`."""
    lives, bodies = lives_of(event), event.texts["bodies"]
    assert isinstance(bodies, bytes)
    rows = split_bodies(bodies, len(lives))
    if rows is None:
        raise ValueError("the event holds messages that cannot be read")
    first = event.values["lives_total"] - len(lives) + 1
    return [
        LoggedMessage(
            number=first + place,
            life=life,
            kept_ms=event.values["keep_s"] * SECOND_MS,
            left_out=left_out,
            headers=orjson.loads(headers) if headers else {},
            payload=payload,
            idempotency_key=key.decode() or None,
        )
        for place, (life, (left_out, key, headers, payload)) in enumerate(zip(lives, rows, strict=True))
    ]


async def life_events(broker: RedisBroker, queue: QueueRef, *, kind: EventKind = LIFE) -> list[MetricEvent]:
    """The events with the lives of a queue, or with the messages of its log, in their order."""
    key = stream_key(kind.name, shard_of(queue.scope, shards=broker.shards))
    entries = await broker._runner.client.execute_command("XRANGE", key, "-", "+")
    events = (unpack(kind, event_bytes(fields)) for _, fields in entries)
    return [event for event in events if event.dimensions == queue.names]


async def emitted_lives(broker: RedisBroker, queue: QueueRef) -> list[Life]:
    """The lives of a queue, in their order."""
    return [life for event in await life_events(broker, queue) for life in lives_of(event)]


async def emitted_log(broker: RedisBroker, queue: QueueRef) -> list[LoggedMessage]:
    """The messages in the log of a queue, in their order."""
    return [one for event in await life_events(broker, queue, kind=LOG) for one in logged_of(event)]


_COLUMNS = (
    *("organization", "project", "environment", "queue", "bucket_start", "ended_at", "message_id", "key"),
    *("events", "shard", "outcome", "reason", "enqueued_at", "available_at", "handed_out_at", "priority"),
    *("attempts", "attempt_started_at", "attempt_ended_at", "attempt_end", "attempt_consumer", "handler_ms"),
    *("leased_ms", "blocked_by_id", "payload_bytes"),
)


def land_lives(connection: ClickHouseConnection, lives: Iterable[Life]) -> None:
    """Write lives as the pipeline would have landed them."""
    parts = [part.name for part in fields(WaitParts)]
    columns = ", ".join([*_COLUMNS, *parts])
    rows = ", ".join(f"({', '.join(_literals(life, parts))})" for life in lives)
    connection.command(f"INSERT INTO {LIVES} ({columns}) VALUES {rows}")


def land_log(connection: ClickHouseConnection, messages: Iterable[LoggedMessage]) -> None:
    """Write messages into the log as the pipeline would have landed them."""
    parts = [part.name for part in fields(WaitParts)]
    columns = ", ".join([*_COLUMNS, *parts, *_LOG_COLUMNS])
    rows = ", ".join(f"({', '.join((*_literals(one.life, parts), *_log_literals(one)))})" for one in messages)
    connection.command(f"INSERT INTO {LOG_TABLE} ({columns}) VALUES {rows}")


_LOG_COLUMNS = ("number", "kept_until", "left_out", "idempotency_key", "headers", "payload")


def _log_literals(message: LoggedMessage) -> list[str]:
    return [
        str(message.number),
        str((message.life.ended_at_ms + message.kept_ms) // 1_000),
        str(int(message.left_out)),
        _text(message.idempotency_key or ""),
        _text(json.dumps(dict(message.headers)) if message.headers else ""),
        _text(message.payload.decode()),
    ]


def _literals(life: Life, parts: list[str]) -> list[str]:
    attempts = life.last_attempts
    return [
        *(_text(name) for name in life.queue.names),
        str(life.ended_at_ms // 5_000 * 5),
        _moment(life.ended_at_ms),
        _text(life.message_id),
        _text(life.key or ""),
        "1",
        "0",
        _text(life.outcome.value),
        _text("" if life.reason is None else life.reason.value),
        *(_moment(at) for at in (life.enqueued_at_ms, life.available_at_ms, life.handed_out_at_ms or 0)),
        str(life.priority),
        str(life.attempts),
        f"[{', '.join(_moment(one.started_at_ms) for one in attempts)}]",
        f"[{', '.join(_moment(one.ended_at_ms) for one in attempts)}]",
        f"[{', '.join(_text(one.end.value) for one in attempts)}]",
        f"[{', '.join(_text(one.consumer) for one in attempts)}]",
        "NULL" if life.handler_ms is None else str(life.handler_ms),
        str(life.leased_ms),
        _text(life.blocked_by_id or str(UUID(int=0))),
        str(life.payload_bytes),
        *(str(getattr(life.parts, name)) for name in parts),
    ]


def _moment(at_ms: int) -> str:
    return f"fromUnixTimestamp64Milli(toInt64({at_ms}), 'UTC')"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
