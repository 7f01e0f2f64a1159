"""Behind a pooler in transaction mode nothing of a session is used, and nothing is left in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from support.pgbouncer import pooled_url
from support.statements import statement
from weir.control.database import Database, execute, fetch
from weir.control.inspect import inspect_postgres
from weir.control.migrate import migrate_postgres
from weir.control.system_events import SystemEventKind, SystemEvents
from weir.errors import Conflict, ControlUnavailable

MAKE = statement("CREATE TABLE numbers (n int PRIMARY KEY, text text)")
FILL = statement("INSERT INTO numbers SELECT n, 'kept' FROM generate_series(0, 399) AS n")
READ = statement("SELECT n, text FROM numbers WHERE n = %(n)s")
DELETE = statement("DELETE FROM numbers WHERE n = %(n)s")
ADD = statement("INSERT INTO numbers (n) VALUES (%(n)s)")
COUNT = statement("SELECT count(*) AS count FROM numbers")
SLEEP = statement("SELECT pg_sleep(30)")
LEVEL = statement("SELECT current_setting('transaction_isolation') AS level")
SESSION = statement(
    "SELECT (SELECT count(*) FROM pg_prepared_statements) AS prepared,"
    " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory') AS locks,"
    " (SELECT setting FROM pg_settings WHERE name = 'statement_timeout') AS timeout,"
    " (SELECT count(*) FROM pg_listening_channels()) AS channels"
)


@pytest.fixture
def pooled(database_url: str) -> Iterator[str]:
    with pooled_url(database_url) as url:
        yield url


@pytest.fixture
async def behind(pooled: str) -> AsyncIterator[Database]:
    async with Database(pooled, max_size=4) as database:
        yield database


@pytest.fixture(params=["alone", "pooler", "pooler that ignores our settings"])
def any_url(request: pytest.FixtureRequest, database_url: str) -> Iterator[str]:
    if request.param == "alone":
        yield database_url
        return
    more = "ignore_startup_parameters = options" if "ignores" in request.param else ""
    with pooled_url(database_url, more=more) as url:
        yield url


async def test_a_read_never_runs_the_statement_of_another_process(pooled: str) -> None:
    async with Database(pooled, max_size=4) as reader, Database(pooled, max_size=4) as deleter:
        await reader.execute(MAKE)
        await reader.execute(FILL)

        async def read() -> None:
            for number in [*range(200)] * 2:
                assert await reader.fetch(READ, n=number) == [{"n": number, "text": "kept"}]

        async def delete() -> None:
            for number in range(200, 400):
                assert await deleter.execute(DELETE, n=number) == 1

        await asyncio.gather(read(), read(), delete(), read())
        assert await reader.fetch_one(COUNT) == {"count": 200}


async def test_nothing_is_left_in_a_session(behind: Database, pooled: str) -> None:
    await behind.execute(MAKE)
    events = SystemEvents(database=behind)
    listening = asyncio.create_task(events.run())
    for number in range(30):
        async with behind.transaction(answer_s=1, idle_s=3) as connection:
            await execute(connection, ADD, n=number)
        async with behind.connection(answer_s=2) as connection:
            await fetch(connection, READ, n=number)
        await behind.execute(DELETE, n=number)
    await migrate_postgres(behind)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    plain = {"prepared": 0, "locks": 0, "timeout": "0", "channels": 0}
    with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as looker:
        for _ in range(6):
            row = looker.execute(SESSION.text).fetchone()
            assert row == tuple(plain.values())


async def test_news_arrives_without_notifications(behind: Database) -> None:
    heard = asyncio.Event()
    events = SystemEvents(database=behind)

    async def hear(_: object) -> None:
        heard.set()

    events.on(SystemEventKind.SPEC_APPLIED, hear)
    await events.catch_up()
    running = asyncio.create_task(events.run())
    await events.publish(SystemEventKind.SPEC_APPLIED)
    async with asyncio.timeout(10):
        await heard.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_statement_ends_at_its_deadline_in_the_server_too(pooled: str) -> None:
    async with Database(pooled, max_size=1, answer_s=0.5) as database:
        with pytest.raises(ControlUnavailable, match="statement timeout"):
            await database.fetch(SLEEP)


async def test_a_migration_holds_others_off_and_leaves_no_lock(postgres_url: str) -> None:
    name = "t_migrated_behind_a_pooler"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
    try:
        bare = postgres_url.rpartition("/")[0] + f"/{name}"
        with pooled_url(bare, sessions=6) as url:
            async with Database(url, max_size=4) as one, Database(url, max_size=4) as two:
                done = await asyncio.gather(migrate_postgres(one), migrate_postgres(two))
                assert sorted(map(bool, done)) == [False, True]
                row = await one.fetch_one(SESSION)
                assert row is not None
                assert row["locks"] == 0
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def test_doctor_says_that_there_is_a_pooler(pooled: str, database_url: str) -> None:
    assert "a pooler shares sessions" in (await inspect_postgres(pooled)).notes()[0]
    assert (await inspect_postgres(database_url)).notes() == []


async def test_statements_run_read_committed_whatever_the_default_is(any_url: str, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = serializable")
    async with Database(any_url, max_size=2) as database:
        assert await database.fetch_one(LEVEL) == {"level": "read committed"}
        async with database.transaction() as connection:
            assert await fetch(connection, LEVEL) == [{"level": "read committed"}]


@pytest.mark.parametrize("failing", range(1, 10))
async def test_a_connection_is_sound_after_any_write_that_failed(any_url: str, failing: int) -> None:
    async with Database(any_url, max_size=1) as database:
        await database.execute(MAKE)
        for number in range(12):
            if number == failing:
                with pytest.raises(Conflict):
                    await database.execute(ADD, n=0)
            assert await database.execute(ADD, n=number) == 1
        assert await database.fetch_one(COUNT) == {"count": 12}
