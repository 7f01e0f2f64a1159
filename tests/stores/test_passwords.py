"""A wrong password for a store is called that, before anything else is tried."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import pytest

from weir.broker.preflight import check_redis
from weir.errors import Misconfigured, WarehouseUnavailable
from weir.settings import StoreUrls
from weir.stores.ready import postgres_ready, stores_ready
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
