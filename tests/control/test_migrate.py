"""Migrations: applied once, in order, under a lock; resumable, and refused when they were changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import clickhouse_connect
import psycopg
import pytest

from support.urls import with_database
from weir.control.database import Database
from weir.control.migrate import Migration, PostgresMigrations, migrate, outstanding, read_migrations, verify
from weir.errors import Misconfigured, WeirError
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.migrate import ClickHouseMigrations, drop_warehouse, migrate_warehouse
from weir.warehouse.statements import split_statements

FIRST = Migration(number=1, name="first", text="CREATE TABLE weir.first (a int);")
SECOND = Migration(
    number=2, name="second", text="CREATE TABLE weir.second (b int); INSERT INTO weir.second VALUES (1);"
)
BROKEN = Migration(number=2, name="second", text="CREATE TABLE weir.second (b int); SELECT 1/0;")


@pytest.fixture
def empty_url(postgres_url: str) -> Iterator[str]:
    name = f"t_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield with_database(postgres_url, name)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def empty(empty_url: str) -> AsyncIterator[Database]:
    async with Database(empty_url) as database:
        yield database


async def count_rows(database: Database, table: str) -> int:
    async with database.connection() as connection:
        cursor = await connection.execute(f"SELECT count(*) AS n FROM {table}")
        row = await cursor.fetchone()
    assert row is not None
    return int(row["n"])


async def test_a_second_run_applies_nothing(empty: Database) -> None:
    store = PostgresMigrations(empty)
    assert await migrate(store, [FIRST, SECOND]) == [FIRST, SECOND]
    assert await migrate(store, [FIRST, SECOND]) == []
    assert await count_rows(empty, "weir.second") == 1


async def test_two_runs_at_once_apply_each_migration_once(empty_url: str) -> None:
    async with Database(empty_url) as one, Database(empty_url) as other:
        applied = await asyncio.gather(
            *(migrate(PostgresMigrations(database), [FIRST, SECOND]) for database in (one, other) * 3)
        )
        assert sorted(len(each) for each in applied) == [0, 0, 0, 0, 0, 2]


async def test_a_failed_migration_leaves_nothing_behind_and_can_be_repeated(empty: Database) -> None:
    store = PostgresMigrations(empty)
    with pytest.raises(WeirError):
        await migrate(store, [FIRST, BROKEN])
    assert await store.read_applied() == {1: FIRST.checksum}
    assert await migrate(store, [FIRST, SECOND]) == [SECOND]


async def test_a_changed_migration_is_refused(empty: Database) -> None:
    await migrate(PostgresMigrations(empty), [FIRST])
    changed = Migration(number=1, name="first", text="CREATE TABLE weir.other (a int);")
    with pytest.raises(Misconfigured, match="was changed after PostgreSQL had applied it"):
        await migrate(PostgresMigrations(empty), [changed])


async def test_a_store_that_is_behind_is_refused_with_the_command_to_run(empty: Database) -> None:
    with pytest.raises(Misconfigured, match="run `weir migrate`"):
        await verify(PostgresMigrations(empty), [FIRST])


async def test_a_store_from_a_newer_version_is_refused(empty: Database) -> None:
    await migrate(PostgresMigrations(empty), [FIRST, SECOND])
    with pytest.raises(Misconfigured, match="start a newer Weir"):
        await verify(PostgresMigrations(empty), [FIRST])


def test_the_shipped_migrations_are_numbered_and_named() -> None:
    for package in ("weir.control.migrations", "weir.warehouse.migrations"):
        assert [one.number for one in read_migrations(package)] == sorted(
            {one.number for one in read_migrations(package)}
        )


def test_a_migration_from_a_lower_range_is_applied_late() -> None:
    assert outstanding({2: SECOND.checksum}, [FIRST, SECOND], store="PostgreSQL") == [FIRST]


@pytest.fixture
async def warehouse(clickhouse_url: str) -> AsyncIterator[str]:
    url = with_database(clickhouse_url, f"t_{uuid4().hex}")
    yield url
    await drop_warehouse(url)


async def test_the_warehouse_is_migrated_once(warehouse: str) -> None:
    assert await migrate_warehouse(warehouse) == read_migrations("weir.warehouse.migrations")
    assert await migrate_warehouse(warehouse) == []


async def test_a_warehouse_migration_goes_on_after_a_kill_between_two_statements(warehouse: str) -> None:
    await migrate_warehouse(warehouse)
    migration = Migration(
        number=999,
        name="two_tables",
        text="CREATE TABLE IF NOT EXISTS a (x Int8) ENGINE = Memory; CREATE TABLE IF NOT EXISTS b AS a;",
    )
    connection = ClickHouseConnection(warehouse)
    connection.command(split_statements(migration.text)[0])
    store = ClickHouseMigrations(connection)
    shipped = read_migrations("weir.warehouse.migrations")
    assert await migrate(store, [*shipped, migration]) == [migration]
    connection.close()
    with clickhouse_connect.get_client(dsn=warehouse) as client:
        assert "b" in client.command("SHOW TABLES").split()


def test_statements_are_cut_at_semicolons_outside_of_quotes_and_comments() -> None:
    text = "-- a; b\nSELECT ';' ; /* ; */ SELECT `a;b` -- end;\n;\n;-- nothing"
    assert split_statements(text) == ["-- a; b\nSELECT ';'", "/* ; */ SELECT `a;b` -- end;"]
