"""Migrations: numbered `.sql` files, applied once, in order, under a lock; the same runner for every store.

A store says how it locks, which files it has applied and how it applies one file. The runner compares,
refuses a file that was changed after it had been applied, and applies the rest. It can run twice, in two
processes at once, and again after a kill.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from importlib.resources import files
from typing import Protocol

from weir.control.database import Connection, Database
from weir.errors import Misconfigured
from weir.model.durations import HOUR_MS
from weir.model.wording import amount

_FILE = re.compile(r"(?P<number>\d{4})_(?P<name>[a-z0-9_]+)\.sql\Z")
# The advisory lock of everyone who migrates this database: "weir" in ASCII.
_LOCK_KEY = 0x77656972
# How long to wait for the lock, and for one file: rewriting a large table takes minutes.
_PATIENCE_S = 600.0
# All migrations together: the transaction that holds the lock is idle while they are applied.
_LOCK_IDLE_MS = HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One numbered file. Its checksum is that of its text."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.number:04}_{self.name}"


class MigrationStore(Protocol):
    """A store that migrations change."""

    @property
    def name(self) -> str: ...

    def locked(self) -> AbstractAsyncContextManager[None]:
        """Keep every other process from migrating during the block."""
        ...

    async def read_applied(self) -> Mapping[int, str]:
        """The checksums of the applied files by number; empty for a new store."""
        ...

    def undisturbed(self, missing: Sequence[Migration]) -> AbstractAsyncContextManager[None]:
        """Keep others from writing during the block, if these migrations would lose what they write."""
        ...

    async def apply(self, migration: Migration) -> None:
        """Apply one and record it. After a kill in the middle, applying it again completes it."""
        ...


def read_migrations(package: str) -> list[Migration]:
    """The migrations that ship in `package`, by number."""
    found: dict[int, Migration] = {}
    for entry in files(package).iterdir():
        if not entry.name.endswith(".sql"):
            continue
        match = _FILE.match(entry.name)
        if match is None:
            raise ValueError(f"{package}/{entry.name}: expected a name like `0001_what_it_does.sql`")
        number = int(match["number"])
        if number in found:
            raise ValueError(f"{package}: number {number:04} is used twice")
        found[number] = Migration(number=number, name=match["name"], text=entry.read_text())
    return [found[number] for number in sorted(found)]


async def migrate(store: MigrationStore, migrations: Sequence[Migration]) -> list[Migration]:
    """Bring the store up to date; returns the migrations that it lacked."""
    async with store.locked():
        missing = outstanding(await store.read_applied(), migrations, store=store.name)
        async with store.undisturbed(missing):
            for migration in missing:
                await store.apply(migration)
    return missing


async def verify(store: MigrationStore, migrations: Sequence[Migration]) -> None:
    """Refuse to start on a store that is not up to date."""
    missing = outstanding(await store.read_applied(), migrations, store=store.name)
    if missing:
        raise Misconfigured(
            f"{store.name} lacks {amount(len(missing), 'migration')}, the first is `{missing[0]}`; "
            "run `weir migrate`"
        )


def outstanding(
    applied: Mapping[int, str], migrations: Sequence[Migration], *, store: str
) -> list[Migration]:
    """The migrations that the store lacks; an applied file that has changed or vanished is refused."""
    known = {migration.number: migration for migration in migrations}
    for number, checksum in sorted(applied.items()):
        if number not in known:
            raise Misconfigured(
                f"{store} has migration {number:04}, which this version does not know; start a newer Weir"
            )
        if known[number].checksum != checksum:
            raise Misconfigured(
                f"migration `{known[number]}` was changed after {store} had applied it; restore the file"
            )
    return [migration for migration in migrations if migration.number not in applied]


class PostgresMigrations:
    """PostgreSQL: an advisory lock, and one transaction for each file and its record."""

    name = "PostgreSQL"

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        # The lock belongs to a transaction that does nothing else: behind a pooler, a lock of a session would
        # be left to somebody else.
        async with (
            self._database.connection(answer_s=_PATIENCE_S) as connection,
            connection.transaction(force_rollback=True),
        ):
            await connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {_LOCK_IDLE_MS}")
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
            async with self._database.connection(answer_s=_PATIENCE_S) as other:
                await _make_history(other)
            yield

    async def read_applied(self) -> Mapping[int, str]:
        async with self._database.connection() as connection:
            exists = await connection.execute("SELECT to_regclass('weir.migrations') IS NOT NULL AS made")
            row = await exists.fetchone()
            if row is None or not row["made"]:
                return {}
            rows = await connection.execute("SELECT number, checksum FROM weir.migrations")
            return {row["number"]: row["checksum"] for row in await rows.fetchall()}

    def undisturbed(self, missing: Sequence[Migration]) -> AbstractAsyncContextManager[None]:
        """Others may write: PostgreSQL applies a file in one transaction, with locks of its own."""
        return nullcontext()

    async def apply(self, migration: Migration) -> None:
        # Without the deadline of other commits: the function that checks it comes with a migration.
        async with self._database.connection(answer_s=_PATIENCE_S) as connection, connection.transaction():
            await connection.execute(migration.text.encode())
            await connection.execute(
                "INSERT INTO weir.migrations (number, name, checksum) VALUES (%s, %s, %s)",
                (migration.number, migration.name, migration.checksum),
            )


async def _make_history(connection: Connection) -> None:
    await connection.execute("CREATE SCHEMA IF NOT EXISTS weir")
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS weir.migrations ("
        " number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,"
        " applied_at timestamptz NOT NULL DEFAULT now())"
    )


async def migrate_postgres(database: Database) -> list[Migration]:
    """Bring the control store up to date."""
    return await migrate(PostgresMigrations(database), read_migrations("weir.control.migrations"))


async def verify_postgres(database: Database) -> None:
    """Refuse to start on a control store that is not up to date."""
    await verify(PostgresMigrations(database), read_migrations("weir.control.migrations"))
