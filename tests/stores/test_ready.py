"""Starting while a store is there and not ready yet: processes wait for it, and say so."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from support.api_process import ApiProcess
from support.processes import cont, stop
from support.servers import RunningServer, start_server
from support.waiting import until
from weir.broker.preflight import is_loading
from weir.control.inspect import is_starting
from weir.embedded.redis import RedisServer
from weir.errors import BrokerUnavailable
from weir.stores.ready import postgres_ready, redis_ready

FEW_KEYS = 40_000
MANY_KEYS = 150_000
"""They take longer to load than a process takes to start."""
KEY_DELAY_US = 100
"""How long each takes to load. Redis looks at its clients after every 1,024."""


@pytest.fixture
def loading_url(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A Redis that has just begun to load its data, with as many keys as the test says."""
    folder = tmp_path
    server = start_server(
        lambda port: RedisServer(folder / "redis", port=port, password="p"), log_folder=folder
    )
    with redis.Redis.from_url(server.url) as client:
        for at in range(0, request.param, 10_000):
            with client.pipeline(transaction=False) as pipeline:
                for n in range(at, at + 10_000):
                    pipeline.set(f"key-{n}", "x")
                pipeline.execute()
    server.stop()
    command = server.server.command()
    process = subprocess.Popen(
        [*command.argv, "--key-load-delay", str(KEY_DELAY_US)],
        cwd=command.cwd,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield server.url
    finally:
        process.kill()
        process.wait()


async def begun(url: str) -> None:
    await until(lambda: is_loading(url))


@pytest.mark.parametrize("loading_url", [FEW_KEYS], indirect=True)
async def test_a_redis_that_loads_is_waited_for_and_that_is_said(loading_url: str) -> None:
    said: list[str] = []
    await begun(loading_url)
    with pytest.raises(BrokerUnavailable, match="loading"):
        await redis_ready(loading_url, say=said.append, patience_s=0.2)
    await redis_ready(loading_url, say=said.append)
    assert not await is_loading(loading_url)
    assert said[0] == "Redis is loading its data; waiting for it"


@pytest.mark.slow
@pytest.mark.parametrize("loading_url", [MANY_KEYS], indirect=True)
async def test_serve_waits_for_a_redis_that_loads(
    tmp_path: Path, loading_url: str, database_url: str, clickhouse_url: str
) -> None:
    await begun(loading_url)
    environment = {
        "WEIR_REDIS_URL": loading_url,
        "WEIR_POSTGRES_URL": database_url,
        "WEIR_CLICKHOUSE_URL": clickhouse_url,
        "WEIR_API__LOG_LEVEL": "WARNING",
    }
    process = ApiProcess(tmp_path, environment)
    try:
        await process.start()
    finally:
        await process.kill()
    assert "Redis is loading its data" in process.log.read_text()


async def test_a_server_that_is_not_there_is_not_waited_for() -> None:
    started = time.monotonic()
    await redis_ready("redis://127.0.0.1:1/0", say=print)
    await postgres_ready("postgresql://weir@127.0.0.1:1/weir", say=print)
    assert time.monotonic() - started < 5


async def test_a_postgresql_that_recovers_is_waited_for(postgres: RunningServer) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE filler AS SELECT n, repeat('x', 200) FROM generate_series(1, 200000) n"
        )
    await asyncio.to_thread(postgres.kill)
    starting = asyncio.create_task(asyncio.to_thread(postgres.start))
    recovering = await asyncio.to_thread(_frozen_recovery, postgres)
    said: list[str] = []
    try:
        assert await is_starting(postgres.url)
        waiting = asyncio.create_task(postgres_ready(postgres.url, say=said.append))
        await until(lambda: said)
    finally:
        cont(recovering)
    await waiting
    await starting
    assert said[0] == "PostgreSQL is starting up; waiting for it"


def _frozen_recovery(server: RunningServer) -> int:
    """The process that recovers, stopped as soon as it is there."""
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        try:
            for child in psutil.Process(server.pid).children():
                if any("startup" in word for word in child.cmdline()):
                    stop(child.pid)
                    return child.pid
        except (RuntimeError, psutil.Error):
            continue
    raise AssertionError("PostgreSQL never began to recover")
