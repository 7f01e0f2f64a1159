"""A PostgreSQL that hangs: nobody waits longer than was said, and what it reads too late changes nothing."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import psycopg
import pytest
import uvloop

from support.processes import frozen, frozen_tree
from support.servers import TestServers
from support.statements import statement
from weir.control.bounded import ClockReading
from weir.control.database import Connection, Database, execute, fetch
from weir.errors import ControlUnavailable

ANSWER_S = 0.6
SLACK_S = 1.5
"""What a busy machine adds."""


ONE = statement("SELECT 1 AS one")
BACKEND = statement("SELECT pg_backend_pid() AS pid")
MAKE = statement("CREATE TABLE numbers (n int PRIMARY KEY)")
ADD = statement("INSERT INTO numbers (n) VALUES (%(n)s)")
NUMBERS = statement("SELECT n FROM numbers ORDER BY n")


@pytest.fixture
async def bounded(database_url: str) -> AsyncIterator[Database]:
    """Trusts its connections, so that statements are sent to a server that hangs."""
    async with Database(
        database_url, max_size=2, timeout_s=0.5, answer_s=ANSWER_S, trusted_s=60, name="bounded"
    ) as database:
        await database.execute(MAKE)
        yield database


@contextmanager
def at_most(limit_s: float) -> Iterator[None]:
    started = time.monotonic()
    yield
    took_s = time.monotonic() - started
    assert took_s < limit_s + SLACK_S, f"it took {took_s:.1f} s, and {limit_s:.1f} s were promised"


async def settled(database_url: str) -> list[int]:
    """The table once every connection of `bounded` that was abandoned has ended."""
    async with Database(database_url, max_size=1, timeout_s=10, name="looker") as looker:
        alive = statement(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'bounded' AND state <> 'idle' "
            "AND datname = current_database()"
        )
        async with asyncio.timeout(20):
            while await looker.fetch(alive):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return [row["n"] for row in await looker.fetch(NUMBERS)]


async def test_an_answer_that_never_comes_is_waited_for_as_long_as_was_said(
    bounded: Database, servers: TestServers
) -> None:
    await bounded.fetch(ONE)
    with frozen_tree(servers.postgres.pid), at_most(ANSWER_S), pytest.raises(ControlUnavailable):
        await bounded.fetch(ONE)


async def test_without_trust_the_sign_of_life_is_missed_within_the_wait_for_a_connection(
    database_url: str, servers: TestServers
) -> None:
    async with Database(database_url, min_size=4, max_size=4, timeout_s=0.5) as database:
        await database.fetch(ONE)
        with frozen_tree(servers.postgres.pid):
            for _ in range(3):
                with at_most(0.75), pytest.raises(ControlUnavailable):
                    await database.fetch(ONE)
        async with asyncio.timeout(10):
            while True:
                try:
                    assert await database.fetch(ONE) == [{"one": 1}]
                    return
                except ControlUnavailable:
                    continue


async def test_giving_up_early_waits_for_nobody(bounded: Database, servers: TestServers) -> None:
    """The driver would ask the server to cancel, and wait 10 s for it."""
    await bounded.fetch(ONE)
    with frozen_tree(servers.postgres.pid), at_most(0.2), pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await bounded.fetch(ONE)


async def test_a_write_that_is_read_after_its_deadline_changes_nothing(
    bounded: Database, servers: TestServers, database_url: str
) -> None:
    await bounded.execute(ADD, n=1)
    with frozen_tree(servers.postgres.pid), at_most(ANSWER_S), pytest.raises(ControlUnavailable):
        await bounded.execute(ADD, n=2)
    assert await settled(database_url) == [1]


async def test_a_commit_that_is_read_after_its_deadline_changes_nothing(
    bounded: Database, servers: TestServers, database_url: str
) -> None:
    with pytest.raises(ControlUnavailable), at_most(ANSWER_S):  # noqa: PT012
        async with bounded.transaction() as connection:
            await execute(connection, ADD, n=1)
            hang = frozen_tree(servers.postgres.pid)
            hang.__enter__()
    hang.__exit__(None, None, None)
    assert await settled(database_url) == []


async def test_a_commit_in_time_stands_and_a_failed_block_leaves_nothing(bounded: Database) -> None:
    async with bounded.transaction() as connection:
        await execute(connection, ADD, n=1)
    with pytest.raises(LookupError):  # noqa: PT012
        async with bounded.transaction() as connection:
            await execute(connection, ADD, n=2)
            raise LookupError
    assert await bounded.fetch(NUMBERS) == [{"n": 1}]


async def test_one_backend_that_hangs_is_left_and_another_one_taken(database_url: str) -> None:
    async with Database(database_url, min_size=2, max_size=2, timeout_s=1.0) as database:
        async with database.connection() as connection:
            hanging = (await fetch(connection, BACKEND))[0]["pid"]
        with frozen(hanging):
            for _ in range(4):
                with at_most(1.0):
                    row = await database.fetch_one(BACKEND)
                assert row is not None
                assert row["pid"] != hanging


async def test_who_waits_for_a_lock_of_a_backend_that_hangs_ends_in_time_and_keeps_the_connection(
    bounded: Database,
) -> None:
    await bounded.execute(ADD, n=1)
    held, lock = asyncio.Event(), statement("UPDATE numbers SET n = n WHERE n = 1")

    async def hold(until: asyncio.Event) -> None:
        async with bounded.transaction() as connection:
            await execute(connection, lock)
            held.set()
            await until.wait()

    until = asyncio.Event()
    holding = asyncio.create_task(hold(until))
    await held.wait()
    with at_most(ANSWER_S), pytest.raises(ControlUnavailable, match="statement timeout"):
        await bounded.execute(lock)
    until.set()
    await holding
    assert await bounded.execute(lock) == 1


async def test_a_frozen_process_loses_its_locks(database_url: str) -> None:
    """Its transaction ends when it says nothing for as long as it may."""
    async with Database(database_url, max_size=2) as database:
        await database.execute(MAKE)
        await database.execute(ADD, n=1)
        with pytest.raises(ControlUnavailable):  # noqa: PT012
            async with database.transaction(idle_s=0.2) as connection:
                await execute(connection, ADD, n=2)
                await asyncio.to_thread(_wait_until_unlocked, database_url)
        assert await database.fetch(NUMBERS) == [{"n": 1}]


def _wait_until_unlocked(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("SET lock_timeout = '20s'")
        other.execute("ALTER TABLE numbers ADD COLUMN seen bool")


async def test_the_deadline_is_in_the_time_of_postgresql_whatever_our_own_clock_says(
    bounded: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our host is an hour ahead, then an hour behind: nothing is refused, and nothing late is taken."""
    for wrong_s in (3_600.0, -3_600.0):
        monkeypatch.setattr(time, "time", lambda wrong_s=wrong_s: wrong_s)
        assert await bounded.execute(ADD, n=round(wrong_s)) == 1


async def test_a_whole_loan_can_be_bounded(bounded: Database, servers: TestServers) -> None:
    await bounded.fetch(ONE)
    with frozen_tree(servers.postgres.pid), at_most(0.2), pytest.raises(ControlUnavailable):
        async with bounded.connection(within_s=0.2) as connection:
            await fetch(connection, ONE)


async def test_a_connection_that_came_only_half_way_is_closed_without_the_garbage_collector() -> None:
    closed = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(100):
            pass
        closed.set()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        gc.disable()
        try:
            async with (
                Database(f"postgresql://nobody@127.0.0.1:{port}/none", max_size=1),
                asyncio.timeout(10),
            ):
                await closed.wait()
        finally:
            gc.enable()


def test_the_deadline_is_never_later_than_we_wait() -> None:
    """The answer was on its way, so PostgreSQL's clock is a little ahead of what we reckon."""
    reading = ClockReading(server_ms=1_000_000, at_s=50.0)
    assert reading.server_time_ms(50.0) == 1_000_000
    assert reading.server_time_ms(52.5) == 1_002_500


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("SELECT 1", False),
        ("SELECT 'INSERT' AS word -- and DELETE", False),
        ("WITH gone AS (DELETE FROM t RETURNING 1) SELECT count(*) FROM gone", True),
        ("insert into t values (1)", True),
        ("SELECT updated_at FROM deleted", False),
    ],
)
def test_statements_that_write_are_known(text: str, writes: bool) -> None:
    assert statement(text).writes is writes


async def test_a_session_of_its_own_answer_time(bounded: Database) -> None:
    async with bounded.transaction(answer_s=3.0) as connection:
        await _nap(connection, 1.0)
    with pytest.raises(ControlUnavailable):
        async with bounded.transaction() as connection:
            await _nap(connection, 1.0)


async def _nap(connection: Connection, seconds: float) -> None:
    await connection.execute("SELECT pg_sleep(%s)", (seconds,))


async def test_changes_together_are_made_or_not_made_together(bounded: Database) -> None:
    async with bounded.together():
        await bounded.execute(ADD, n=1)
        async with bounded.transaction() as connection:
            await execute(connection, ADD, n=2)
    with pytest.raises(LookupError):  # noqa: PT012
        async with bounded.together():
            await bounded.execute(ADD, n=3)
            async with bounded.transaction() as connection:
                await execute(connection, ADD, n=4)
            raise LookupError
    assert await bounded.fetch(NUMBERS) == [{"n": 1}, {"n": 2}]


async def test_a_task_that_is_started_together_has_a_connection_of_its_own(bounded: Database) -> None:
    with pytest.raises(LookupError):  # noqa: PT012
        async with bounded.together():
            await bounded.execute(ADD, n=1)
            await asyncio.create_task(bounded.execute(ADD, n=2))
            raise LookupError
    assert await bounded.fetch(NUMBERS) == [{"n": 2}]


def test_a_connection_that_is_free_after_our_own_loop_was_blocked_is_taken(database_url: str) -> None:
    async def wait_and_block() -> int:
        async with Database(database_url, max_size=1, timeout_s=0.2, name="blocked") as database:
            held = asyncio.Event()

            async def hold() -> None:
                async with database.connection():
                    held.set()
                    await asyncio.sleep(0.1)

            holder = asyncio.create_task(hold())
            await held.wait()
            asyncio.get_running_loop().call_later(0.01, time.sleep, 0.5)
            ((row),) = await database.fetch(ONE)
            await holder
            return int(row["one"])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(wait_and_block()) == 1
