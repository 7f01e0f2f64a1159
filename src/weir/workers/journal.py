"""Records of workers in PostgreSQL: attempts for the timeline, handler times, results under idempotency keys.

They are written in batches, and no message waits for a write. While PostgreSQL is away the newest records
wait and the oldest are dropped; the messages themselves are not affected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import orjson

from weir.control.arrays import array_literals
from weir.control.database import Database, Row, execute
from weir.control.old_rows import cleaning, delete_old
from weir.control.scopes import scope_names
from weir.control.sql import load_queries
from weir.errors import ControlUnavailable
from weir.model.clock import Clock, SystemClock
from weir.model.durations import DAY_MS, HOUR_MS
from weir.model.handling import error_text
from weir.model.limits import MAX_RESULT_BYTES
from weir.model.message import Delivery
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.receipts import receipt_of
from weir.model.trace_context import trace_id_of
from weir.model.write_buffer import WriteBuffer
from weir.warehouse.tables import BUCKET_MS

SQL = load_queries("weir.workers", "journal.sql")
# A worker that is killed loses the records of this time (decision 0070).
FLUSH_S = 0.25
# The most records that wait while PostgreSQL is away.
CAPACITY = 50_000
# Encoding a row takes about 3 us of the event loop, so a batch holds the loop for 3 ms.
BATCH = 1_000
ATTEMPTS_KEPT_MS = 7 * DAY_MS
KEYS_KEPT_MS = DAY_MS
# To find out what is usual, a verdict looks back by at most 105 minutes.
HANDLER_TIMES_KEPT_MS = 6 * HOUR_MS
_KEPT_MS = {
    "forget_attempts": ATTEMPTS_KEPT_MS,
    "forget_handler_times": HANDLER_TIMES_KEPT_MS,
    "forget_keys": KEYS_KEPT_MS,
}
# A lost lease does not count: no consumer reported a failure.
FAILED_ENDINGS = frozenset({"failed", "dead"})
_ATTEMPT = (
    "organization",
    "project",
    "environment",
    "queue",
    "message_id",
    "attempt",
    "worker",
    "enqueued_at_ms",
    "started_at_ms",
    "finished_at_ms",
    "ending",
    "error",
    "hook",
    "received_at_ms",
    "trace_id",
)
_HANDLER_TIME = (
    "organization",
    "project",
    "environment",
    "queue",
    "bucket_ms",
    "worker",
    "attempts",
    "failed",
    "handler_ms",
)
_RESULT = ("organization", "project", "environment", "queue", "key", "message_id", "result", "at_ms")
_KEY_AT = _RESULT.index("key")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt at a message that has ended."""

    delivery: Delivery
    worker: str
    started_at_ms: int
    finished_at_ms: int
    ending: str
    error: str = ""
    result: Any = None


class _Packed(NamedTuple):
    """An attempt as rows. A tuple, because a frozen dataclass takes four times as long to make."""

    queue: QueueRef
    worker: str
    finished_at_ms: int
    handler_ms: int
    is_failed: bool
    attempt: tuple[Any, ...]
    result: tuple[Any, ...] | None


class AttemptJournal(Protocol):
    """Records attempts."""

    def record(self, attempt: AttemptRecord) -> None: ...


class PostgresJournal:
    """Collects attempts and writes them with their results in batches."""

    def __init__(
        self, database: Database, *, clock: Clock | None = None, flush_every_s: float = FLUSH_S
    ) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._flush_every_s = flush_every_s
        self._buffer = WriteBuffer(self._write, capacity=CAPACITY, batch=BATCH, away=(ControlUnavailable,))

    def record(self, attempt: AttemptRecord) -> None:
        # Rows wait, not messages: while PostgreSQL is away so many payloads would fill the memory.
        self._buffer.add(_packed(attempt))

    async def flush(self) -> None:
        """Write the waiting records. If that fails they keep waiting."""
        await self._buffer.flush()

    async def clean(self) -> None:
        """Delete old rows."""
        now_ms = self._clock.now_ms()
        for name, kept_ms in _KEPT_MS.items():
            await delete_old(self._database, SQL[name], before_ms=now_ms - kept_ms)

    async def run(self) -> None:
        """Flush and delete old rows until cancelled, and flush once more at the end."""
        async with cleaning(self.clean):
            await self._buffer.run(every_s=self._flush_every_s)

    async def _write(self, batch: list[_Packed]) -> None:
        attempts = array_literals(_ATTEMPT, (one.attempt for one in batch))
        times = array_literals(_HANDLER_TIME, _handler_times(batch))
        results = _latest(batch)
        async with self._database.transaction() as connection:
            await execute(connection, SQL["record_attempts"], **attempts)
            await execute(connection, SQL["record_handler_times"], **times)
            if results:
                await execute(connection, SQL["record_results"], **array_literals(_RESULT, results))


async def attempts_of(database: Database, scope: EnvironmentRef, message_id: str) -> list[Row]:
    """The attempts at one message, oldest first."""
    return await database.fetch(SQL["attempts_of_message"], message_id=message_id, **scope_names(scope))


async def result_of(database: Database, scope: EnvironmentRef, message_id: str) -> Row | None:
    """The key and the result of one processed message."""
    return await database.fetch_one(SQL["result_of_message"], message_id=message_id, **scope_names(scope))


def _packed(attempt: AttemptRecord) -> _Packed:
    delivery = attempt.delivery
    keeps_result = attempt.ending == "done" and delivery.idempotency_key is not None
    return _Packed(
        delivery.queue,
        attempt.worker,
        attempt.finished_at_ms,
        max(attempt.finished_at_ms - attempt.started_at_ms, 0),
        attempt.ending in FAILED_ENDINGS,
        _attempt_row(attempt),
        _result_row(attempt) if keeps_result else None,
    )


def _latest(batch: Iterable[_Packed]) -> list[tuple[Any, ...]]:
    """The results to keep. Only the last result of a key: one statement must not touch a row twice."""
    found = {(one.queue, one.result[_KEY_AT]): one.result for one in batch if one.result is not None}
    return list(found.values())


def _handler_times(batch: Iterable[_Packed]) -> Iterator[tuple[Any, ...]]:
    """The number of attempts, of failures, and the handler time, per queue, worker and warehouse bucket."""
    sums: dict[tuple[QueueRef, int, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for one in batch:
        found = sums[one.queue, one.finished_at_ms - one.finished_at_ms % BUCKET_MS, one.worker]
        found[0] += 1
        found[1] += one.is_failed
        found[2] += one.handler_ms
    for (queue, bucket_ms, worker), figures in sums.items():
        yield (*queue.names, bucket_ms, worker, *figures)


def _attempt_row(attempt: AttemptRecord) -> tuple[Any, ...]:
    delivery = attempt.delivery
    received_at_ms, hook = receipt_of(delivery.headers)
    return (
        *delivery.queue.names,
        delivery.message_id,
        delivery.attempt,
        attempt.worker,
        delivery.enqueued_at_ms,
        attempt.started_at_ms,
        attempt.finished_at_ms,
        attempt.ending,
        # PostgreSQL's text has no NUL.
        error_text(attempt.error).replace("\x00", "\ufffd"),
        hook,
        received_at_ms,
        trace_id_of(delivery.headers),
    )


def _result_row(attempt: AttemptRecord) -> tuple[Any, ...]:
    delivery = attempt.delivery
    return (
        *delivery.queue.names,
        delivery.idempotency_key,
        delivery.message_id,
        result_text(attempt.result),
        attempt.finished_at_ms,
    )


def result_text(result: Any) -> str:
    """A result as JSON text. If it is too large or has no JSON form, a note that says so."""
    try:
        data = orjson.dumps(result, default=str, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, orjson.JSONEncodeError):
        data = orjson.dumps({"unserialisable": type(result).__name__})
    # PostgreSQL cannot read JSON text with a NUL.
    if len(data) > MAX_RESULT_BYTES or b"\\u0000" in data:
        data = orjson.dumps({"omitted": f"{len(data)} bytes"})
    return data.decode()
