"""The state of a PostgreSQL server: whether it is starting up, its version, its size, its durability."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import AsyncConnection

from weir.control.database import CONNECT_S, Database, fetch_one
from weir.control.migrate import PostgresMigrations, outstanding, read_migrations
from weir.control.sql import load_queries
from weir.errors import Misconfigured
from weir.model.wording import amount

_QUERIES = load_queries("weir.control", "inspect.sql")
MINIMUM = 140_000
"""PostgreSQL 14, as the server numbers its versions."""
_STARTING = ("starting up", "not yet accepting connections", "in recovery mode")
"""libpq has no code for a refused connection, only the text of the server."""
_REFUSED = ("password authentication failed", "no password supplied", "no pg_hba.conf entry", "SASL")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresState:
    version: str
    version_number: int
    size_bytes: int
    fsync: bool
    read_only: bool
    pooled: bool
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
            found.append(
                f"PostgreSQL lacks {amount(self.missing_migrations, 'migration')}; run `weir migrate`"
            )
        return found

    def notes(self) -> list[str]:
        if not self.pooled:
            return []
        return ["a pooler shares sessions, so processes look for each other's news every 0.5 s"]


async def is_starting(url: str) -> bool:
    """Whether PostgreSQL is there and refuses connections for now; False if it accepts them, or is not there.

    If it refuses the user or the password, waiting does not help, so that is an error at once.
    """
    try:
        connection = await AsyncConnection.connect(url, connect_timeout=CONNECT_S)
    except psycopg.OperationalError as error:
        _complain_of_password(error)
        return any(text in str(error) for text in _STARTING)
    await connection.close()
    return False


def _complain_of_password(error: psycopg.OperationalError) -> None:
    lines = [line for line in str(error).splitlines() if any(text in line for text in _REFUSED)]
    if lines:
        reason = lines[0].rpartition("FATAL:")[2].strip()
        raise Misconfigured(
            f"PostgreSQL refuses the user or password ({reason}); correct `WEIR_POSTGRES_URL`"
        ) from None


async def inspect_postgres(url: str) -> PostgresState:
    """Read the state of a PostgreSQL server and count the migrations that it lacks."""
    await is_starting(url)
    async with Database(url, max_size=2, timeout_s=5, name="weir doctor") as database:
        async with database.connection() as connection:
            pooled = connection.pooled
            row = await fetch_one(connection, _QUERIES["server_state"])
        applied = await PostgresMigrations(database).read_applied()
    missing = outstanding(applied, read_migrations("weir.control.migrations"), store="PostgreSQL")
    if row is None:
        raise RuntimeError("a query without FROM returns one row")
    return PostgresState(**row, pooled=pooled, missing_migrations=len(missing))
