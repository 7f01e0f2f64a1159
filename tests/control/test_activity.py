"""What a pool counts for its process is what PostgreSQL counts."""

from __future__ import annotations

from contextlib import suppress

import psycopg
import pytest

from support.tcp_proxy import TcpProxy
from support.urls import with_database
from support.waiting import until
from weir.control.database import Database, execute, fetch
from weir.control.sql import NamedQuery
from weir.errors import Conflict, ControlUnavailable
from weir.telemetry.process_counts import ProcessCounts

READ = NamedQuery(name="read", sentence="One row.", text="SELECT 1 AS one")
MAKE = NamedQuery(name="make", sentence="A table.", text="CREATE TABLE numbers (n int PRIMARY KEY)")
WRITE = NamedQuery(name="write", sentence="One row.", text="INSERT INTO numbers VALUES (%(n)s)")


class Leaving(Exception):
    """The block of a transaction fails."""


async def ended_transactions(url: str) -> int:
    """How many transactions PostgreSQL counted in a database; sessions report theirs when they end."""
    name = url.rpartition("/")[2].partition("?")[0]

    async with await psycopg.AsyncConnection.connect(
        with_database(url, "postgres"), autocommit=True
    ) as asking:

        async def gone() -> bool:
            cursor = await asking.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", (name,))
            row = await cursor.fetchone()
            return row is not None and row[0] == 0

        await until(gone)
        cursor = await asking.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s", (name,)
        )
        row = await cursor.fetchone()
        assert row is not None
        return int(row[0])


async def use(url: str, counts: ProcessCounts, *, work: bool) -> None:
    # A connection that was just used needs no sign of life, which PostgreSQL would count.
    async with Database(url, max_size=1, trusted_s=60, activity=counts) as database:
        await database.open(wait_s=10)
        async with database.connection():
            # Its first use begins with a sign of life.
            pass
        if not work:
            return
        await database.execute(MAKE)
        # Few times: psycopg prepares a statement that it sees a fifth time, in a transaction of its own.
        await database.execute(WRITE, n=0)
        with pytest.raises(Conflict):
            await database.execute(WRITE, n=0)
        await database.fetch(READ)
        async with database.transaction() as connection:
            await execute(connection, WRITE, n=10)
            await fetch(connection, READ)
        async with database.together():
            await database.execute(WRITE, n=11)
            await database.fetch(READ)
        with suppress(Leaving):
            async with database.transaction() as connection:
                await execute(connection, WRITE, n=12)
                raise Leaving


async def test_transactions_are_those_that_postgresql_counts(database_url: str) -> None:
    counts = ProcessCounts()
    at_first = await ended_transactions(database_url)
    await use(database_url, counts, work=False)
    connecting = await ended_transactions(database_url) - at_first
    assert counts.take().values == {}, "connecting is not work"
    await use(database_url, counts, work=True)
    counted = await ended_transactions(database_url) - at_first - 2 * connecting
    assert counts.take().values == {"transactions": counted}
    assert counted == 8


async def test_an_error_is_a_postgresql_that_failed_and_no_refusal(database_url: str) -> None:
    counts = ProcessCounts()
    async with (
        TcpProxy.to(database_url) as proxy,
        Database(proxy.url, max_size=1, timeout_s=0.5, activity=counts) as database,
    ):
        await database.execute(MAKE)
        await database.execute(WRITE, n=1)
        with pytest.raises(Conflict):
            await database.execute(WRITE, n=1)
        assert "errors" not in counts.take().values
        proxy.refuse()
        with pytest.raises(ControlUnavailable):
            await database.execute(WRITE, n=2)
        assert counts.take().values == {"errors": 1}
