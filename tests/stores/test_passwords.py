"""A wrong password for a store is called that, before anything else is tried."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from structlog.testing import capture_logs

from support.urls import with_database
from support.waiting import until
from weir.broker.preflight import check_redis
from weir.control.database import Database
from weir.errors import Misconfigured, WarehouseUnavailable
from weir.redis_client import connect
from weir.serve.run import serve
from weir.settings import ApiSettings, EmbeddedSettings, Settings, StoreUrls
from weir.stores.checkup import checkup
from weir.stores.open import open_stores
from weir.stores.ready import postgres_ready, stores_ready
from weir.telemetry.streams import SHARDS
from weir.warehouse.connection import ClickHouseConnection


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    user = f"{parts.username or ''}:{quote(password, safe='')}@" if password else f"{parts.username or ''}@"
    return parts._replace(netloc=f"{user.lstrip('@')}{parts.hostname}:{parts.port}").geturl()


@pytest.mark.parametrize("password", ["wrong", ""])
async def test_redis_says_so(redis_url: str, password: str) -> None:
    with pytest.raises(Misconfigured, match=r"Redis refuses the user or password .*`WEIR_REDIS_URL`"):
        await check_redis(with_password(redis_url, password))


@pytest.mark.parametrize("password", ["wrong", ""])
async def test_postgres_says_so_without_waiting(postgres_url: str, password: str) -> None:
    with pytest.raises(Misconfigured, match=r"PostgreSQL refuses the user or password .*`WEIR_POSTGRES_URL`"):
        await postgres_ready(with_password(postgres_url, password), say=print)


def test_clickhouse_says_so(clickhouse_url: str) -> None:
    with pytest.raises(WarehouseUnavailable, match=r"refuses the user or password .*`WEIR_CLICKHOUSE_URL`"):
        ClickHouseConnection(with_password(clickhouse_url, "wrong"))


async def test_a_process_does_not_start(redis_url: str, postgres_url: str, clickhouse_url: str) -> None:
    urls = StoreUrls(
        redis=redis_url, postgres=with_password(postgres_url, "wrong"), clickhouse=clickhouse_url
    )
    with pytest.raises(Misconfigured, match="password"):
        await stores_ready(urls, say=print)


async def test_doctor_says_it_once(redis_url: str, postgres_url: str, clickhouse_url: str) -> None:
    settings = Settings(
        redis_url=redis_url, postgres_url=with_password(postgres_url, "wrong"), clickhouse_url=clickhouse_url
    )
    report = await checkup(settings)
    (said,) = [problem for problem in report["problems"] if "PostgreSQL" in problem]
    assert said.startswith("postgres: PostgreSQL refuses the user or password")
    assert "webhooks: not checked, because PostgreSQL is not ready" in report["notes"]


async def test_doctor_shows_the_number_of_shards_and_names_another_one(
    redis_url: str, postgres_url: str, clickhouse_url: str
) -> None:
    # A database of its own, because the key has a fixed name.
    url = with_database(redis_url, "7")
    settings = Settings(redis_url=url, postgres_url=postgres_url, clickhouse_url=clickhouse_url, shards=8)
    async with connect(url) as client:
        await client.execute_command("SET", SHARDS, 4)
        report = await checkup(settings)
        await client.execute_command("DEL", SHARDS)
    assert report["redis"]["shards"] == 4
    (said,) = [problem for problem in report["problems"] if "shards" in problem]
    assert "set it to 4" in said


async def test_no_process_starts_with_a_wrong_password_of_redis(
    redis_url: str, postgres_url: str, clickhouse_url: str
) -> None:
    wrong = with_password(redis_url, "wrong")
    urls = StoreUrls(redis=wrong, postgres=postgres_url, clickhouse=clickhouse_url)
    database = Database(postgres_url, max_size=1)
    with pytest.raises(Misconfigured, match="Redis refuses the user or password"):
        async with AsyncExitStack() as stack:
            await open_stores(stack, urls, database=database, shards=4, say=print)


async def test_serve_says_at_its_start_that_charts_cannot_be_read(
    redis_url: str, database_url: str, clickhouse_url: str, tmp_path: Path
) -> None:
    wrong = with_password(clickhouse_url, "wrong")
    urls = StoreUrls(redis=redis_url, postgres=database_url, clickhouse=wrong)
    settings = Settings(api=ApiSettings(port=0), embedded=EmbeddedSettings(data_dir=tmp_path))
    with capture_logs() as lines:
        serving = asyncio.create_task(serve(settings, urls))
        try:
            await until(lambda: any(line["event"] == "charts cannot be read" for line in lines))
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
    (told,) = [line["error"] for line in lines if line["event"] == "charts cannot be read"]
    assert told.startswith("ClickHouse refuses the user or password (weir: Authentication failed")
    assert "server response" not in told
