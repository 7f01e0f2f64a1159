"""Applies migrations to ClickHouse, which has no transactions for them, so progress is kept per statement.

A run that was killed between a statement and its note runs that statement again. So every statement must be
safe to run twice (`IF NOT EXISTS`, `OR REPLACE` …); `./weir check` looks for that.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any
from urllib.parse import unquote, urlsplit

from weir.control.migrate import Migration, migrate, read_migrations, verify
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.statements import split_statements
from weir.warehouse.tables import GRANULE_ROWS

PACKAGE = "weir.warehouse.migrations"
_HISTORY = """
CREATE TABLE IF NOT EXISTS weir_migrations
(
    number UInt16,
    statement UInt16,
    statements UInt16,
    name String,
    checksum String,
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree
ORDER BY (number, statement)
"""
# Only tiers and `message_lives` expire by whole parts, so only they have this setting.
_TIER = re.compile(r"(^CREATE TABLE .*^SETTINGS )(?=.*\bttl_only_drop_parts\b)", re.DOTALL | re.MULTILINE)
_APPLIED = """
SELECT number, any(checksum) AS checksum
FROM weir_migrations
GROUP BY number
HAVING uniqExact(statement) = any(statements)
"""
# An insert misses a detached view. A view whose query was changed counts a repeated insert twice until the
# view is loaded again (0014).
_ALONE = re.compile(r"^\s*(?:DETACH TABLE|ALTER TABLE \w+ MODIFY QUERY)\b", re.MULTILINE)

Alone = Callable[[], AbstractAsyncContextManager[Any]]
"""Keeps the pipeline from inserting during a block, or raises if it cannot."""


class ClickHouseMigrations:
    """The migrations of one ClickHouse database. ClickHouse has no locks, so the caller passes one."""

    name = "ClickHouse"

    def __init__(
        self,
        connection: ClickHouseConnection,
        *,
        lock: AbstractAsyncContextManager[Any] | None = None,
        alone: Alone = nullcontext,
    ) -> None:
        self._connection = connection
        self._lock = lock or nullcontext()
        self._alone = alone

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        async with self._lock:
            yield

    @asynccontextmanager
    async def undisturbed(self, missing: Sequence[Migration]) -> AsyncIterator[None]:
        if not any(_ALONE.search(migration.text) for migration in missing):
            yield
            return
        async with self._alone():
            yield

    async def read_applied(self) -> Mapping[int, str]:
        await asyncio.to_thread(self._connection.command, _HISTORY)
        rows = await asyncio.to_thread(self._connection.rows, _APPLIED)
        return {row["number"]: row["checksum"] for row in rows}

    async def apply(self, migration: Migration) -> None:
        statements = split_statements(migration.text)
        for index, statement in enumerate(statements):
            # The statement before its note: a statement that runs twice is safe, a skipped one is not.
            await asyncio.to_thread(self._connection.command, with_granules(statement))
            note = {
                "number": migration.number,
                "statement": index,
                "statements": len(statements),
                "name": migration.name,
                "checksum": migration.checksum,
            }
            token = f"{migration}:{index}:{migration.checksum}"
            await asyncio.to_thread(self._connection.insert_rows, "weir_migrations", [note], token=token)


def with_granules(statement: str) -> str:
    """The statement; if it creates a tier or `message_lives`, the table gets granules of `GRANULE_ROWS`.

    This is not written in the files, because an applied file never changes and ClickHouse cannot change the
    granules of a table. So existing tables keep their granules, and new tables get these.
    """
    return _TIER.sub(rf"\1index_granularity = {GRANULE_ROWS}, ", statement)


async def migrate_warehouse(
    url: str, *, lock: AbstractAsyncContextManager[Any] | None = None, alone: Alone = nullcontext
) -> list[Migration]:
    """Create the URL's database if it is missing and apply the migrations that it lacks.

    `alone` is entered for migrations that change views, because a pipeline must not insert during them.
    """
    await asyncio.to_thread(_on_server, url, "CREATE DATABASE IF NOT EXISTS {database:Identifier}")
    async with _connected(url) as connection:
        return await migrate(
            ClickHouseMigrations(connection, lock=lock, alone=alone), read_migrations(PACKAGE)
        )


async def verify_warehouse(url: str) -> None:
    """Refuse a warehouse that lacks a migration of this version."""
    async with _connected(url) as connection:
        await verify(ClickHouseMigrations(connection), read_migrations(PACKAGE))


async def drop_warehouse(url: str) -> None:
    """Remove the URL's database with everything in it."""
    await asyncio.to_thread(_on_server, url, "DROP DATABASE IF EXISTS {database:Identifier} SYNC")


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[ClickHouseConnection]:
    connection = await asyncio.to_thread(ClickHouseConnection, url)
    try:
        yield connection
    finally:
        connection.close()


def _on_server(url: str, statement: str) -> None:
    """Run a statement about the URL's database from outside of it."""
    parts = urlsplit(url)
    connection = ClickHouseConnection(parts._replace(path="/default").geturl())
    try:
        connection.command(statement, {"database": unquote(parts.path.lstrip("/")) or "default"})
    finally:
        connection.close()
