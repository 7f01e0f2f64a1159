"""Old rows are deleted until none is left, however many there are, and as long as the process runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from support.statements import statement
from support.waiting import until
from weir.control.database import Database, execute
from weir.control.old_rows import BATCH
from weir.control.system_events import SystemEvents
from weir.lineage.children import PostgresChildren
from weir.model.asyncio_tasks import cancel_and_wait
from weir.operations.maintenance import Cleaner
from weir.operations.queue import OperationQueue
from weir.outbound.delivery_log import PostgresDeliveryLog
from weir.workers.journal import KEYS_KEPT_MS, SQL, PostgresJournal

# Each fills its table with `rows` rows that are long out of date.
FILLED = {
    "delivery_log": """(organization, project, environment, queue, message_id, attempt, url,
                        sent_at_ms, duration_ms, verdict)
        SELECT 'o', 'p', 'e', 'q', n::text, 1, 'https://x/', n, 1, 'delivered'""",
    "message_attempts": """(organization, project, environment, queue, message_id, attempt, worker,
                            enqueued_at_ms, started_at_ms, finished_at_ms, ending)
        SELECT 'o', 'p', 'e', 'q', n::text, 1, 'w', n, n, n, 'done'""",
    "handler_times": """(organization, project, environment, queue, bucket_ms, worker, attempts, failed,
                         handler_ms)
        SELECT 'o', 'p', 'e', 'q', n, 'w', 1, 0, 1""",
    "idempotency_keys": """(organization, project, environment, kind, name, key, message_id, at_ms)
        SELECT 'o', 'p', 'e', 'queue', 'q', n::text, n::text, n""",
    "message_children": """(organization, project, environment, parent_id, child_id, queue, kind, at_ms)
        SELECT 'o', 'p', 'e', gen_random_uuid(), gen_random_uuid(), 'q', 'chained', n""",
    "operation_lanes": "(lane, priority, pending, turn_ms) SELECT n, 0, 0, 0",
    "system_events": "(kind, published_by, created_ms) SELECT 'spec.apply', 'p', n",
}
RUNS: dict[str, Callable[[Database], Awaitable[None]]] = {
    "delivery_log": lambda database: PostgresDeliveryLog(database).run(),
    "message_attempts": lambda database: PostgresJournal(database).run(),
    "handler_times": lambda database: PostgresJournal(database).run(),
    "idempotency_keys": lambda database: PostgresJournal(database).run(),
    "message_children": lambda database: PostgresChildren(database).run(),
    "operation_lanes": lambda database: Cleaner(database=database, queue=OperationQueue(database)).run(),
    "system_events": lambda database: SystemEvents(database=database).run(),
}


async def fill(database: Database, table: str, *, rows: int) -> None:
    await database.execute(
        statement(f"INSERT INTO weir.{table} {FILLED[table]} FROM generate_series(1, %(rows)s) AS n"),
        rows=rows,
    )


async def is_empty(database: Database, table: str) -> bool:
    return not await database.fetch(statement(f"SELECT 1 FROM weir.{table} LIMIT 1"))


@asynccontextmanager
async def running(loop: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(loop)
    try:
        yield
    finally:
        await cancel_and_wait([task])


@pytest.mark.parametrize("table", FILLED)
async def test_more_old_rows_than_one_statement_deletes_are_deleted_at_once(
    database: Database, table: str
) -> None:
    await fill(database, table, rows=2 * BATCH + 1)
    async with running(RUNS[table](database)):
        await until(lambda: is_empty(database, table))


async def test_system_events_that_grow_old_while_the_process_runs_are_deleted_too(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.control.old_rows.EVERY_S", 0.01)
    async with running(SystemEvents(database=database).run()):
        for _ in range(2):
            await fill(database, "system_events", rows=1)
            await until(lambda: is_empty(database, "system_events"))


async def test_an_expired_key_that_is_claimed_again_is_neither_waited_for_nor_deleted(
    database: Database,
) -> None:
    hook = {"organization": "o", "project": "p", "environment": "e", "name": "h", "key": "k", "digest": b"d"}
    expired = {"expired_ms": KEYS_KEPT_MS, "stuck_ms": 0}
    await database.execute(SQL["begin_hook"], **hook, **expired, message_id="m1", now_ms=1)
    async with database.transaction() as connection:
        again_ms = 2 * KEYS_KEPT_MS
        await execute(connection, SQL["begin_hook"], **hook, **expired, message_id="m2", now_ms=again_ms)
        await PostgresJournal(database).clean()
    rows = await database.fetch(statement("SELECT message_id FROM weir.idempotency_keys"))
    assert [row["message_id"] for row in rows] == ["m2"]
