"""Fills the dead letters of `weir bench dlq`: large and small consumers, similar errors, real indexes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from benches.figures import say
from weir.channels.consumers import ensure_consumers
from weir.control.database import Database, execute, fetch
from weir.control.sql import load_queries
from weir.deadletters.summary import bootstrap
from weir.model.durations import DAY_MS
from weir.model.names import EnvironmentRef

CONSUMERS = 100
GROUPS = 20
PAYLOAD_BYTES = 200
DAYS_30_MS = 30 * DAY_MS

_ERRORS = ("connect to <address> refused", "timed out after <n> ms", "order <n> not found", "no <uuid>")
SQL = load_queries("benches", "dlq.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many dead letters each part of the bench gets."""

    rows: int
    purge: int
    redrive: int
    chunk: int = 500_000
    """Dead letters of one insert."""

    @property
    def spread(self) -> int:
        """Dead letters of the hundred consumers; the first consumers have most of them."""
        return self.rows - self.purge - self.redrive


async def fill(database: Database, environment: EnvironmentRef, sizes: Sizes) -> dict[str, float]:
    """Fill the table quickly, rows before indexes and counts, and return how long rows and indexes took."""
    spread = [f"consumer-{number:03}" for number in range(CONSUMERS)]
    async with database.transaction() as connection:
        queues = [environment.queue(name) for name in (*spread, "purge-me", "redrive-me")]
        keys = await ensure_consumers(connection, queues, now_ms=_now_ms())
        consumers = [keys[queue] for queue in queues]
        await execute(
            connection,
            SQL["add_groups"],
            keys=consumers,
            errors=list(_ERRORS),
            kinds=GROUPS,
            now_ms=_now_ms(),
        )
    began = time.monotonic()
    definitions = await _drop_indexes(database)
    await _insert(database, sizes, consumers)
    loaded = time.monotonic()
    say(f"{sizes.rows:,} rows in {loaded - began:.0f} s; now the indexes")
    await _make_indexes(database, definitions)
    indexed = time.monotonic()
    await _count(database)
    say(f"indexes in {indexed - loaded:.0f} s, counts in {time.monotonic() - indexed:.0f} s")
    return {"load_s": round(loaded - began, 1), "index_s": round(indexed - loaded, 1)}


async def _insert(database: Database, sizes: Sizes, consumers: list[int]) -> None:
    parts = [
        (sizes.spread, consumers[:CONSUMERS]),
        (sizes.purge, consumers[CONSUMERS : CONSUMERS + 1]),
        (sizes.redrive, consumers[CONSUMERS + 1 :]),
    ]
    began_ms = _now_ms() - DAYS_30_MS
    # As in real use, letters that were enqueued at about the same time are stored side by side.
    chunks = [
        (
            min(sizes.chunk, count - start),
            keys,
            began_ms + DAYS_30_MS * start // count,
            DAYS_30_MS * min(sizes.chunk, count - start) // count,
        )
        for count, keys in parts
        for start in range(0, count, sizes.chunk)
    ]
    done = 0

    async def work() -> None:
        nonlocal done
        while chunks:
            count, keys, from_ms, span_ms = chunks.pop(0)
            async with database.connection() as connection:
                await execute(
                    connection,
                    SQL["add_letters"],
                    count=count,
                    keys=keys,
                    kinds=GROUPS,
                    from_ms=from_ms,
                    span_ms=span_ms,
                    size=PAYLOAD_BYTES,
                )
            done += count
            say(f"{done:,} of {sizes.rows:,} rows")

    await asyncio.gather(work(), work())


async def _drop_indexes(database: Database) -> list[str]:
    """Drop every index, and return the statements that make them again."""
    async with database.connection() as connection:
        rows = await fetch(connection, SQL["index_definitions"])
        await connection.execute("ALTER TABLE weir.dead_letters DROP CONSTRAINT dead_letters_pkey")
        for row in rows:
            await connection.execute(f"DROP INDEX weir.{row['indexname']}".encode())
    return ["ALTER TABLE weir.dead_letters ADD PRIMARY KEY (id)", *(row["indexdef"] for row in rows)]


async def _make_indexes(database: Database, definitions: list[str]) -> None:
    async with database.connection() as connection:
        await connection.execute("SET maintenance_work_mem = '1GB'")
        for number, definition in enumerate(definitions, start=1):
            await connection.execute(definition.encode())
            say(f"index {number} of {len(definitions)}")
        await connection.execute("VACUUM (ANALYZE) weir.dead_letters")


async def _count(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute("DELETE FROM weir.dlq_summary")
        await bootstrap(connection, now_ms=_now_ms())
        await execute(connection, SQL["count_groups"])
    async with database.connection() as connection:
        await connection.execute("VACUUM ANALYZE weir.dlq_summary, weir.dead_letter_groups, weir.consumers")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
