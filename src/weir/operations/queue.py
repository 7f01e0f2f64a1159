"""The operation queue in PostgreSQL: add, claim, settle. One statement each, many operations per call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from weir.control.database import Database, Row, fetch, fetch_one
from weir.control.scopes import queue_of_row
from weir.control.sql import load_queries
from weir.errors import WeirError
from weir.model.durations import SECOND_MS
from weir.model.ids import OperationId, is_canonical_id
from weir.model.limits import MAX_BATCH
from weir.operations.model import (
    ALLOWANCE_MS,
    LONGEST_WAIT_MS,
    MAX_ROUND_BYTES,
    SUSPECT_TRIES,
    Claimed,
    NewOperation,
    SettledOperation,
)

QUERIES = load_queries("weir.operations", "queue.sql")


class NotQueued(WeirError):
    """The operation will certainly not run: PostgreSQL never got it, or it was made void."""

    code = "control_unavailable"
    title = "Control store unavailable"
    status = 503
    retryable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    depth: int
    hold_ms: int
    """For how long direct writes that do not know of these operations may still go on."""


class OperationQueue:
    """The statements that move operations; the caller brings a pool of its own connections."""

    def __init__(self, database: Database, *, allowance_ms: int = ALLOWANCE_MS) -> None:
        self._database = database
        self._allowance_ms = allowance_ms

    @property
    def allowance_s(self) -> float:
        """How long a direct allowance lasts."""
        return self._allowance_ms / SECOND_MS

    async def add(self, operations: Sequence[NewOperation]) -> Added:
        """Make the operations durable. Any error but NotQueued leaves open whether they are."""
        columns = _columns(operations)
        ungated = [operation.shard for operation in operations if not operation.gated]
        reached = False
        held: list[Row] = []
        try:
            # One statement is one round trip. Only the second one, about open gates, needs a transaction.
            async with self._database.transaction() if ungated else self._database.connection() as connection:
                reached = True
                added = await fetch_one(connection, QUERIES["add_operations"], **columns)
                if ungated:
                    held = await fetch(
                        connection, QUERIES["hold_direct"], shard=ungated, allowance_ms=self._allowance_ms
                    )
        except WeirError as error:
            if reached:
                raise
            raise NotQueued(str(error), retry_after_s=1) from error
        hold_ms = max((row["remaining_ms"] for row in held), default=0)
        return Added(depth=int(added["depth"]) if added else 0, hold_ms=hold_ms)

    async def depth(self) -> int:
        row = await self._database.fetch_one(QUERIES["depth"])
        return int(row["depth"]) if row else 0

    async def ping(self, *, within_s: float) -> None:
        """Raise unless PostgreSQL answers within this time."""
        async with self._database.connection(within_s=within_s) as connection:
            await fetch_one(connection, QUERIES["ping"])

    async def claim(
        self, *, worker: str, partitions: int, run: int, total: int, messages: int = MAX_BATCH
    ) -> list[Claimed]:
        """Claim the oldest operations of partitions that nobody runs, in the order of their acceptance."""
        rows = await self._database.fetch(
            QUERIES["claim_operations"],
            worker=worker,
            partitions=partitions,
            run=run,
            total=total,
            messages=messages,
            bytes=MAX_ROUND_BYTES,
            suspect=SUSPECT_TRIES,
            longest_ms=LONGEST_WAIT_MS,
        )
        empty = [row["lane"] for row in rows if row["id"] is None]
        if empty:
            await self._database.execute(QUERIES["release_partitions"], partitions=empty, worker=worker)
        return [_claimed(row) for row in rows if row["id"] is not None]

    async def settle(self, results: Sequence[SettledOperation], *, worker: str) -> dict[OperationId, int]:
        """Record the results and free the partitions; return the ages of operations still this worker's."""
        rows = await self._database.fetch(
            QUERIES["settle_operations"],
            worker=worker,
            id=[result.id for result in results],
            lane=[result.partition for result in results],
            status=[result.status.value for result in results],
            counted=[result.counted for result in results],
            error=[result.error for result in results],
            result=[None if result.result is None else Jsonb(dict(result.result)) for result in results],
            delay_ms=[result.delay_ms for result in results],
        )
        return {OperationId(str(row["id"])): row["age_ms"] for row in rows}

    async def find_still_mine(self, ids: Sequence[OperationId], *, worker: str) -> set[OperationId]:
        rows = await self._database.fetch(QUERIES["still_mine"], id=list(ids), worker=worker)
        return {OperationId(str(row["id"])) for row in rows}

    async def find_unfinished(self, ids: Sequence[str]) -> set[str]:
        """The ids among these whose operations are still to be executed."""
        # PostgreSQL refuses the whole query if one id is not a UUID, as every operation's id is.
        possible = [one for one in ids if is_canonical_id(one)]
        rows = await self._database.fetch(QUERIES["unfinished"], id=possible)
        return {str(row["id"]) for row in rows}

    async def find_asked_about(self, slots: Sequence[str]) -> set[str]:
        """The slots of calls that an operation will still ask about."""
        rows = await self._database.fetch(QUERIES["asked_about"], slots=list(slots))
        return {str(row["call_lane"]) for row in rows}

    async def publish_rate(self, *, process: str, per_s: float, floor_ms: float) -> None:
        await self._database.execute(QUERIES["publish_rate"], process=process, per_s=per_s, floor_ms=floor_ms)

    async def forget_rates(self) -> None:
        """Drop the rates of processes that are gone."""
        await self._database.execute(QUERIES["forget_rates"])

    async def read_rate(self, *, besides: str, within_ms: int) -> tuple[float, float]:
        """Operations per second of all other processes together, and how long an operation waits that finds
        the queue empty."""
        row = await self._database.fetch_one(QUERIES["read_rate"], process=besides, within_ms=within_ms)
        return (float(row["per_s"]), float(row["floor_ms"])) if row else (0.0, 0.0)


def _columns(operations: Sequence[NewOperation]) -> dict[str, list[Any]]:
    return {
        "id": [operation.id for operation in operations],
        "organization": [operation.queue.organization for operation in operations],
        "project": [operation.queue.project for operation in operations],
        "environment": [operation.queue.environment for operation in operations],
        "queue": [operation.queue.queue for operation in operations],
        "partition": [operation.key for operation in operations],
        "shard": [operation.shard for operation in operations],
        "lane": [operation.partition for operation in operations],
        "type": [operation.type.value for operation in operations],
        "priority": [operation.priority for operation in operations],
        "payload": [operation.payload for operation in operations],
        "messages": [operation.messages for operation in operations],
        "gated": [operation.gated for operation in operations],
        "timeout_ms": [operation.timeout_ms for operation in operations],
        "max_retries": [operation.max_retries for operation in operations],
        "call_lane": [operation.call_slot for operation in operations],
        "first_message": [_end(operation, 0) for operation in operations],
        "last_message": [_end(operation, 1) for operation in operations],
    }


def _end(operation: NewOperation, end: int) -> str | None:
    return None if operation.message_ids is None else operation.message_ids[end]


def _claimed(row: Row) -> Claimed:
    return Claimed(
        id=OperationId(str(row["id"])),
        queue=queue_of_row(row),
        key=row["partition"],
        type=row["type"],
        partition=row["lane"],
        payload=bytes(row["payload"]),
        messages=row["messages"],
        age_ms=row["age_ms"],
        retry_count=row["retry_count"],
        max_retries=row["max_retries"],
        tries=row["tries"],
    )
