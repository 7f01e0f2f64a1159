"""kill -9 of each embedded server while it is written to: it comes back and keeps what it acknowledged."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import clickhouse_connect
import psycopg
import pyarrow as pa
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from support.processes import is_alive, kill9
from support.servers import last_append_only, redis_program
from support.waiting import until
from weir.embedded.stack import Stack

TIERS = ("landed", "by_ten", "by_hundred")
MANY_ROUNDS = 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data directory that PostgreSQL's account can reach."""
    tmp_path.chmod(0o755)
    return tmp_path / "data"


class Store(Protocol):
    """One store, written to number by number. A write that raises may or may not have happened."""

    def write(self, number: int) -> None: ...
    def read(self) -> list[int]: ...
    def close(self) -> None: ...


class RedisStore:
    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(url, socket_timeout=2, retry=Retry(NoBackoff(), 0))

    def write(self, number: int) -> None:
        self.client.rpush("numbers", number)

    def read(self) -> list[int]:
        return [int(item) for item in self.client.lrange("numbers", 0, -1)]

    def close(self) -> None:
        self.client.close()


class PostgresStore:
    def __init__(self, url: str) -> None:
        self.url = url
        self.connection: psycopg.Connection | None = None
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS numbers (n int)")

    def write(self, number: int) -> None:
        if self.connection is None or self.connection.closed:
            self.close()
            self.connection = psycopg.connect(self.url, autocommit=True, connect_timeout=3)
        self.connection.execute("INSERT INTO numbers VALUES (%s)", (number,))

    def read(self) -> list[int]:
        with psycopg.connect(self.url) as connection:
            return [n for (n,) in connection.execute("SELECT n FROM numbers")]

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


class ClickHouseStore:
    """Inserts with a token, so a retry of an unknown outcome must neither lose nor double its rows."""

    rows = 50

    def __init__(self, url: str) -> None:
        self.url = url
        window = "SETTINGS non_replicated_deduplication_window = 10000"
        with self.connect() as client:
            client.command("CREATE TABLE IF NOT EXISTS landing (n Int64, row Int64) ENGINE = Null")
            for tier, step in zip(TIERS, (1, 10, 100), strict=True):
                client.command(
                    f"CREATE TABLE IF NOT EXISTS {tier} (n Int64, bucket Int64, c Int64) "
                    f"ENGINE = MergeTree ORDER BY n PARTITION BY n % 3 {window}"
                )
                client.command(
                    f"CREATE MATERIALIZED VIEW IF NOT EXISTS {tier}_view TO {tier} AS "
                    f"SELECT n, intDiv(row, {step}) AS bucket, count() AS c FROM landing GROUP BY n, bucket"
                )

    def connect(self) -> Any:
        return clickhouse_connect.get_client(dsn=self.url, send_receive_timeout=5, query_retries=0)

    def write(self, number: int) -> None:
        settings = {
            "insert_deduplication_token": f"token-{number}",
            "deduplicate_blocks_in_dependent_materialized_views": 1,
            "async_insert": 0,
            "max_insert_threads": 1,
        }
        rows = pa.table({"n": [number] * self.rows, "row": list(range(self.rows))})
        with self.connect() as client:
            client.insert_arrow("landing", rows, settings=settings)

    def read(self) -> list[int]:
        found: list[list[int]] = []
        with self.connect() as client:
            for tier in TIERS:
                rows = client.query(f"SELECT n, sum(c) FROM {tier} GROUP BY n").result_rows
                assert {count for _, count in rows} <= {self.rows}, f"{tier} has partial or doubled rows"
                found.append(sorted(n for n, _ in rows))
        assert found[0] == found[1] == found[2], "the tiers disagree"
        return found[0]

    def close(self) -> None:
        """Each write has a connection of its own."""


class Writer(threading.Thread):
    """Writes numbers one after the other until stopped; a number that fails is tried again."""

    def __init__(self, store: Store) -> None:
        super().__init__(daemon=True)
        self.store = store
        self.acknowledged: list[int] = []
        self.unknown = 0
        self.done = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.done.is_set():
            try:
                self.store.write(number)
            except Exception:
                # Whatever the driver raises while its server is gone: the outcome is unknown.
                self.unknown += 1
                self.done.wait(0.02)
            else:
                self.acknowledged.append(number)
                number += 1

    def stop(self) -> list[int]:
        self.done.set()
        self.join(timeout=30)
        return self.acknowledged


STORES: dict[str, Callable[[str], Store]] = {
    "redis": RedisStore,
    "postgres": PostgresStore,
    "clickhouse": ClickHouseStore,
}


async def kill_while_writing(folder: Path, name: str, *, rounds: int) -> None:
    pids: list[int] = []
    reports: list[str] = []
    async with Stack(folder, redis_program=redis_program(), report=reports.append) as stack:
        child = next(child for child in stack.servers if child.server.name == name)
        store = STORES[name](child.server.url)
        writer = Writer(store)
        writer.start()
        for _ in range(rounds):
            written = len(writer.acknowledged)
            await until(lambda written=written: len(writer.acknowledged) >= written + 3)
            await asyncio.sleep(random.random() * 0.1)
            assert child.pid is not None
            pids.append(child.pid)
            kill9(child.pid)
            await until(lambda: child.pid not in (None, pids[-1]) and not is_alive(pids[-1]))
        written = len(writer.acknowledged)
        await until(lambda: len(writer.acknowledged) >= written + 3)
        acknowledged = await asyncio.to_thread(writer.stop)
        kept = await asyncio.to_thread(store.read)
        store.close()
        pids += [server.pid for server in stack.servers if server.pid is not None]

    missing = set(acknowledged) - set(kept)
    assert missing == set()
    if name == "clickhouse":
        assert len(kept) == len(set(kept)), "a token was applied twice"
    assert child.restarts == rounds
    assert [pid for pid in pids if is_alive(pid)] == []
    assert any(f"{name} was ended by signal 9" in line for line in reports)


@pytest.mark.parametrize("name", list(STORES))
async def test_a_killed_server_comes_back_with_what_it_acknowledged(folder: Path, name: str) -> None:
    await kill_while_writing(folder, name, rounds=2)


@pytest.mark.fault
@pytest.mark.parametrize("name", list(STORES))
async def test_twenty_kills_lose_nothing(folder: Path, name: str) -> None:
    await kill_while_writing(folder, name, rounds=MANY_ROUNDS)


async def test_a_server_that_cannot_start_again_is_reported_with_its_last_lines(folder: Path) -> None:
    reports: list[str] = []
    async with Stack(folder, redis_program=redis_program(), report=reports.append) as stack:
        child = next(child for child in stack.servers if child.server.name == "redis")
        aof = last_append_only(folder / "redis")
        store = RedisStore(child.server.url)
        store.write(1)
        store.close()
        damaged = bytearray(aof.read_bytes() * 40)
        damaged[len(damaged) // 2 : len(damaged) // 2 + 8] = b"\x00" * 8
        aof.write_bytes(damaged)
        assert child.pid is not None
        kill9(child.pid)
        with pytest.raises(Exception, match="damaged in the middle"):
            await asyncio.wait_for(stack.wait_for_failure(), 20)
    assert any("redis was ended by signal 9" in line for line in reports)
