"""How the control store is: its version, its size, whether it keeps what it is given."""

from __future__ import annotations

from dataclasses import dataclass

from weir.control.database import Database
from weir.control.migrate import PostgresMigrations, outstanding, read_migrations
from weir.control.sql import load_queries

_QUERIES = load_queries("weir.control", "inspect.sql")
MINIMUM = 140_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresState:
    version: str
    version_number: int
    size_bytes: int
    fsync: bool
    read_only: bool
    missing_migrations: int

    def problems(self) -> list[str]:
        found = []
        if self.version_number < MINIMUM:
            found.append(f"PostgreSQL {self.version} is too old; 14 or later is needed")
        if self.read_only:
            found.append("PostgreSQL is read-only (a standby?); give the URL of the primary")
        if not self.fsync:
            found.append("PostgreSQL runs with `fsync = off`, so a power cut may lose everything; turn it on")
        if self.missing_migrations:
            found.append(f"PostgreSQL lacks {self.missing_migrations} migrations; run `weir migrate`")
        return found


async def inspect_postgres(url: str) -> PostgresState:
    """Ask a PostgreSQL how it is set up."""
    async with Database(url, max_size=2, timeout_s=5, name="weir doctor") as database:
        row = await database.fetch_one(_QUERIES["server_state"])
        applied = await PostgresMigrations(database).applied()
    missing = outstanding(applied, read_migrations("weir.control.migrations"), store="PostgreSQL")
    if row is None:
        raise RuntimeError("a query without FROM returns one row")
    return PostgresState(**row, missing_migrations=len(missing))
