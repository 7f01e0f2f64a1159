"""Shows the operations of an environment, and cancels and retries them by hand."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from weir.admission.kinds import PRIORITIES, OperationType
from weir.broker.broker import Broker, Gated
from weir.control.database import Database, Row
from weir.control.scopes import scope_names
from weir.control.sql import load_queries
from weir.errors import BrokerUnavailable, Conflict, NotFound
from weir.model.ids import check_id
from weir.model.names import EnvironmentRef, QueueRef
from weir.operations.model import OperationStatus

QUERIES = load_queries("weir.operations", "store.sql")
MAX_PAGE = 500
"""Operations in one answer at most."""
MOST_PARTITIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    operations: list[Row]
    next_before: int | None
    """Ask for operations before this position to go on; None at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationGauges:
    """The operation queue of all environments at one moment."""

    unfinished: Mapping[str, int]
    """By type; every type that can be queued is there."""
    oldest_age_ms: int
    failed: int


class OperationStore:
    """Every method but `gauges` is bound to one environment, and does not see operations of others."""

    def __init__(self, *, database: Database, broker: Broker) -> None:
        self._database = database
        self._broker = broker

    async def read(self, environment: EnvironmentRef, operation: str) -> Row:
        """One operation; while it waits, with its position."""
        operation_id = check_id(operation, what="operation")
        row = await self._database.fetch_one(
            QUERIES["read_operation"], id=operation_id, **scope_names(environment)
        )
        if row is None:
            raise NotFound(f"there is no operation `{operation_id}` here; finished ones are kept for an hour")
        if row["status"] == OperationStatus.PENDING:
            place = await self._database.fetch_one(QUERIES["position_of"], id=operation_id)
            row["queue_position"] = place["position"] if place else None
        return _plain(row)

    async def page(
        self,
        environment: EnvironmentRef,
        *,
        status: OperationStatus | None = None,
        queue: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Page:
        limit = max(1, min(limit, MAX_PAGE))
        rows = await self._database.fetch(
            QUERIES["list_operations"],
            **scope_names(environment),
            status=status,
            queue=queue,
            before=before,
            limit=limit,
        )
        return _page(rows, limit)

    async def unfinished_pushes(self, queue: QueueRef, *, before: int | None = None, limit: int = 50) -> Page:
        """The pushes that wait for a queue, newest first."""
        rows = await self._database.fetch(
            QUERIES["list_unfinished_pushes"],
            **scope_names(queue.scope),
            queue=queue.queue,
            before=before,
            limit=limit,
        )
        return _page(rows, limit)

    async def count_queued_messages(self, queue: QueueRef) -> int:
        """How many messages wait in operations for a queue."""
        row = await self._database.fetch_one(
            QUERIES["count_queued_messages"], **scope_names(queue.scope), queue=queue.queue
        )
        return int(row["count"]) if row else 0

    async def stats(self, environment: EnvironmentRef) -> list[Row]:
        return await self._database.fetch(QUERIES["operation_stats"], **scope_names(environment))

    async def fullest_partitions(self, environment: EnvironmentRef) -> list[Row]:
        """Where most pushes wait, the fullest partition first."""
        return await self._database.fetch(
            QUERIES["fullest_partitions"], limit=MOST_PARTITIONS, **scope_names(environment)
        )

    async def gauges(self) -> OperationGauges:
        rows = await self._database.fetch(QUERIES["unfinished_by_type"])
        failed = await self._database.fetch_one(QUERIES["count_failed"])
        return OperationGauges(
            unfinished={**dict.fromkeys(PRIORITIES, 0), **{row["type"]: row["count"] for row in rows}},
            oldest_age_ms=max((row["oldest_age_ms"] for row in rows), default=0),
            failed=int(failed["count"]) if failed else 0,
        )

    async def cancel(self, environment: EnvironmentRef, operation: str) -> Row:
        """Take back an operation that nobody runs yet. Once that is committed, call `open_gate`."""
        operation_id = check_id(operation, what="operation")
        row = await self._database.fetch_one(
            QUERIES["cancel_operation"], id=operation_id, **scope_names(environment)
        )
        if row is None:
            found = await self.read(environment, operation_id)
            raise Conflict(
                f"the operation `{operation_id}` is {found['status']}; only a pending one can be cancelled"
            )
        return await self.read(environment, operation_id)

    async def open_gate(self, environment: EnvironmentRef, cancelled: Row) -> None:
        """Let messages pass that wait for a cancelled push.

        If the broker is out of reach, the gate stays closed until `OrphanGates` opens it.
        """
        if cancelled["type"] != OperationType.PUSH:
            return
        gate = Gated(key=cancelled["partition"], operation=cancelled["id"])
        with suppress(BrokerUnavailable):
            await self._broker.open_gates(environment.queue(cancelled["queue"]), [gate])

    async def retry(self, environment: EnvironmentRef, operation: str) -> Row:
        """Put a failed operation back, behind what is queued now."""
        found = await self.read(environment, operation)
        if found["status"] != OperationStatus.FAILED:
            raise Conflict(
                f"the operation `{found['id']}` is {found['status']}; only a failed one can be retried"
            )
        gate = Gated(key=found["partition"], operation=found["id"], messages=found["messages"])
        if found["type"] == OperationType.PUSH:
            await self._broker.close_gates(environment.queue(found["queue"]), [gate])
        row = await self._database.fetch_one(
            QUERIES["retry_operation"], id=found["id"], **scope_names(environment)
        )
        if row is None:
            raise Conflict(f"the operation `{found['id']}` was changed by someone else; look again")
        return await self.read(environment, found["id"])


def _page(rows: list[Row], limit: int) -> Page:
    next_before = rows[-1]["position"] if len(rows) == limit else None
    return Page(operations=[_plain(row) for row in rows], next_before=next_before)


def _plain(row: Row) -> Row:
    return {**row, "id": str(row["id"])}
