"""`weir migrate` and the pipeline: migrations that change views run only while no pipeline does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from uuid import uuid4

import psycopg
import pytest
from redis import Redis

from support.urls import with_database
from weir.control.migrate import migrate, read_migrations
from weir.errors import Misconfigured
from weir.pipeline.ownership import STREAMS, StreamsLease, StreamsOwner
from weir.settings import StoreUrls
from weir.stores.migrations import migrate_stores
from weir.telemetry.store import StreamStore
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.migrate import PACKAGE, ClickHouseMigrations, drop_warehouse

RELOADS_VIEWS = 11
SHORT_S = 4.5


@pytest.fixture
async def urls(redis_url: str, postgres_url: str, clickhouse_url: str) -> AsyncIterator[StoreUrls]:
    """Stores of an earlier release: the migration that reloads views is missing."""
    name = f"t_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    with closing(ClickHouseConnection(clickhouse_url)) as warehouse:
        warehouse.command(f"CREATE DATABASE {name}")
    found = StoreUrls(
        redis=with_database(redis_url, "7"),
        postgres=with_database(postgres_url, name),
        clickhouse=with_database(clickhouse_url, name),
    )
    earlier = [one for one in read_migrations(PACKAGE) if one.number < RELOADS_VIEWS]
    with closing(ClickHouseConnection(found.clickhouse)) as warehouse:
        await migrate(ClickHouseMigrations(warehouse), earlier)
    yield found
    with Redis.from_url(found.redis) as redis:
        redis.flushdb()
    await drop_warehouse(found.clickhouse)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def running_elsewhere(redis_url: str) -> Iterator[None]:
    """The lease of a pipeline on another host."""
    lease = StreamsLease(
        redis_url, seconds=SHORT_S, owner=StreamsOwner(process=7, host="far-away", kernel="another")
    )
    lease.take()
    lease.start()
    try:
        yield
    finally:
        lease.end()


async def applied_to(url: str) -> set[int]:
    with closing(ClickHouseConnection(url)) as warehouse:
        return set(await ClickHouseMigrations(warehouse).read_applied())


async def test_views_are_not_changed_while_a_pipeline_runs_and_are_when_it_has_stopped(
    urls: StoreUrls,
) -> None:
    with running_elsewhere(urls.redis):
        with pytest.raises(Misconfigured, match=r"process 7 on far-away .* stop it first, run `weir"):
            await migrate_stores(urls)
        assert RELOADS_VIEWS not in await applied_to(urls.clickhouse)
    assert "0011_reload_changed_views" in (await migrate_stores(urls))["clickhouse"]


async def test_a_store_that_lacks_nothing_is_migrated_beside_a_pipeline(urls: StoreUrls) -> None:
    await migrate_stores(urls)
    with running_elsewhere(urls.redis):
        assert await migrate_stores(urls) == {"postgres": [], "clickhouse": []}


async def test_no_pipeline_begins_while_views_are_changed(
    urls: StoreUrls, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[object] = []
    apply = ClickHouseMigrations.apply

    async def look_and_apply(self: ClickHouseMigrations, migration: object) -> None:
        owners.append(StreamStore(urls.redis).read_lease(STREAMS))
        await apply(self, migration)  # type: ignore[arg-type]

    monkeypatch.setattr(ClickHouseMigrations, "apply", look_and_apply)
    await migrate_stores(urls)
    assert owners
    assert all(owners)
    assert StreamStore(urls.redis).read_lease(STREAMS) is None
