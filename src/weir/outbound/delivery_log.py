"""The delivery log and the disabled endpoints in PostgreSQL. Recording never delays a delivery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from weir.control.database import Database, Row
from weir.control.old_rows import cleaning, delete_old
from weir.control.scopes import scope_names, scope_of
from weir.control.sql import load_queries
from weir.errors import ControlUnavailable
from weir.model.clock import Clock, SystemClock
from weir.model.durations import DAY_MS
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.write_buffer import WriteBuffer
from weir.outbound.delivery import DeliveryOutcome

KEPT_MS = 14 * DAY_MS
_SQL = load_queries("weir.outbound", "delivery_log.sql")
_COLUMNS = [
    "organization",
    "project",
    "environment",
    "queue",
    "message_id",
    "attempt",
    "url",
    "sent_at_ms",
    "duration_ms",
    "verdict",
    "status",
    "error",
    "excerpt",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRecord:
    """One attempt for the log."""

    queue: QueueRef
    message_id: str
    attempt: int
    url: str
    sent_at_ms: int
    outcome: DeliveryOutcome


class DeliveryLog(Protocol):
    """Records outbound attempts, and knows which endpoints are disabled."""

    def record(self, record: DeliveryRecord) -> None: ...

    async def disable(self, scope: EnvironmentRef, url: str, *, now_ms: int, reason: str) -> None: ...

    def is_disabled(self, scope: EnvironmentRef, url: str) -> bool: ...


class PostgresDeliveryLog:
    """Collects records and writes them in batches; a full buffer drops the oldest."""

    def __init__(
        self,
        database: Database,
        *,
        flush_every_s: float = 0.25,
        capacity: int = 10_000,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._flush_every_s = flush_every_s
        self._buffer = WriteBuffer(self._write, capacity=capacity, away=(ControlUnavailable,))
        self._disabled: set[tuple[EnvironmentRef, str]] = set()

    def record(self, record: DeliveryRecord) -> None:
        self._buffer.add(record)

    def is_disabled(self, scope: EnvironmentRef, url: str) -> bool:
        return (scope, url) in self._disabled

    async def disable(self, scope: EnvironmentRef, url: str, *, now_ms: int, reason: str) -> None:
        self._disabled.add((scope, url))
        await self._database.execute(
            _SQL["disable_endpoint"], **scope_names(scope), url=url, disabled_at_ms=now_ms, reason=reason
        )

    async def enable(self, scope: EnvironmentRef, url: str) -> bool:
        """Enable an endpoint again; False if it was not disabled."""
        self._disabled.discard((scope, url))
        return await self._database.execute(_SQL["enable_endpoint"], **scope_names(scope), url=url) > 0

    async def list_disabled(self, scope: EnvironmentRef) -> list[Row]:
        """The disabled endpoints of an environment."""
        return await self._database.fetch(_SQL["disabled_endpoints_of"], **scope_names(scope))

    async def of_message(self, scope: EnvironmentRef, message_id: str) -> list[Row]:
        """The attempts of one message, oldest first."""
        return await self._database.fetch(
            _SQL["deliveries_of_message"], **scope_names(scope), message_id=message_id
        )

    async def forget_before(self, before_ms: int) -> int:
        """Delete the older records; returns how many."""
        return await delete_old(self._database, _SQL["forget_deliveries"], before_ms=before_ms)

    async def refresh(self) -> None:
        """Read which endpoints are disabled; other processes disable and enable them too."""
        rows = await self._database.fetch(_SQL["disabled_endpoints"])
        self._disabled = {(scope_of(row), row["url"]) for row in rows}

    async def flush(self) -> None:
        """Write the waiting records. Records that cannot be written now keep waiting."""
        await self._buffer.flush()

    async def run(self) -> None:
        """Flush, read the disabled endpoints and delete old records until cancelled."""
        async with cleaning(lambda: self.forget_before(self._clock.now_ms() - KEPT_MS)):
            await self._buffer.run(every_s=self._flush_every_s, beside=self.refresh)

    async def _write(self, batch: list[DeliveryRecord]) -> None:
        columns = zip(*(_values(record) for record in batch), strict=True)
        await self._database.execute(
            _SQL["record_deliveries"],
            **dict(zip(_COLUMNS, (list(column) for column in columns), strict=True)),
        )


def _values(record: DeliveryRecord) -> tuple[object, ...]:
    outcome = record.outcome
    return (
        *record.queue.names,
        record.message_id,
        record.attempt,
        record.url,
        record.sent_at_ms,
        outcome.duration_ms,
        outcome.verdict.value,
        outcome.status,
        outcome.error,
        outcome.excerpt,
    )
