"""Numbered ClickHouse migrations: checksummed, append-only, safe to run twice or from two processes.

ClickHouse has no transactions around definitions, so every statement is applied on its own and noted
by number; a run that was killed half-way goes on with the first statement that is not noted.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from urllib.parse import unquote, urlsplit

from weir.errors import Misconfigured, WeirError
from weir.warehouse.connection import Connection
from weir.warehouse.statements import split_statements

_LOG = """
CREATE TABLE IF NOT EXISTS weir_migrations
(
    migration String,
    statement UInt16,
    checksum String,
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree
ORDER BY (migration, statement)
"""
_ALREADY_EXISTS = "TABLE_ALREADY_EXISTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    name: str
    statements: tuple[str, ...]

    @property
    def checksum(self) -> str:
        return hashlib.sha256("\n".join(self.statements).encode()).hexdigest()


def migrations() -> tuple[Migration, ...]:
    """The migrations that ship with this version, in order."""
    folder = files("weir.warehouse") / "migrations"
    found = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name
    )
    return tuple(
        Migration(name=file.name.removesuffix(".sql"), statements=tuple(split_statements(file.read_text())))
        for file in found
    )


async def migrate_warehouse(url: str) -> list[str]:
    """Create the URL's database if it is missing and apply the migrations that it lacks."""
    return await asyncio.to_thread(_migrate, url)


async def drop_warehouse(url: str) -> None:
    """Remove the URL's database with everything in it."""
    await asyncio.to_thread(_on_server, url, "DROP DATABASE IF EXISTS {database:Identifier} SYNC")


def _migrate(url: str) -> list[str]:
    _on_server(url, "CREATE DATABASE IF NOT EXISTS {database:Identifier}")
    connection = Connection(url)
    try:
        return migrate(connection)
    finally:
        connection.close()


def _on_server(url: str, statement: str) -> None:
    """Run a statement about the URL's database from outside of it."""
    parts = urlsplit(url)
    connection = Connection(parts._replace(path="/default").geturl())
    try:
        connection.command(statement, {"database": unquote(parts.path.lstrip("/")) or "default"})
    finally:
        connection.close()


def migrate(connection: Connection) -> list[str]:
    """Apply what is missing; the names of the migrations that changed something."""
    connection.command(_LOG)
    applied = _applied(connection)
    return [item.name for item in migrations() if _apply(connection, item, applied.get(item.name, {}))]


def verify(connection: Connection) -> None:
    """Refuse a warehouse that lacks a migration of this version."""
    connection.command(_LOG)
    applied = _applied(connection)
    missing = [m.name for m in migrations() if len(applied.get(m.name, {})) < len(m.statements)]
    if missing:
        raise Misconfigured(f"the warehouse lacks `{missing[0]}`; run `weir migrate`")


def _applied(connection: Connection) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for row in connection.rows("SELECT migration, statement, checksum FROM weir_migrations"):
        found.setdefault(row["migration"], {})[row["statement"]] = row["checksum"]
    return found


def _apply(connection: Connection, migration: Migration, applied: dict[int, str]) -> bool:
    if any(checksum != migration.checksum for checksum in applied.values()):
        raise Misconfigured(f"migration `{migration.name}` changed after it was applied; restore its file")
    missing = [number for number in range(len(migration.statements)) if number not in applied]
    for number in missing:
        _run(connection, migration.statements[number])
        row = {"migration": migration.name, "statement": number, "checksum": migration.checksum}
        connection.insert_rows("weir_migrations", [row], token=f"{migration.name}:{number}")
    return bool(missing)


def _run(connection: Connection, statement: str) -> None:
    """Apply one statement; a definition that exists was made by a run killed before it took note."""
    try:
        connection.command(statement)
    except WeirError as error:
        if _ALREADY_EXISTS not in error.message or "CREATE " not in statement:
            raise
