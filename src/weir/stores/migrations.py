"""Migrates PostgreSQL and ClickHouse under one lock of PostgreSQL, because ClickHouse has no locks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Self

from weir.control.migrate import PostgresMigrations, migrate_postgres
from weir.errors import Misconfigured
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.metric_migration import make_tables
from weir.pipeline.ownership import StreamsLease
from weir.pipeline.registry import load_definitions, registered
from weir.settings import Settings, StoreUrls
from weir.stores.open import opened_database
from weir.stores.ready import Say, redis_ready
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.migrate import migrate_warehouse
from weir.warehouse.tables import TierRetention


async def migrate_stores(
    urls: StoreUrls, *, metrics: RegisteredMetrics | None = None, say: Say = lambda _: None
) -> dict[str, list[str]]:
    """Migrate PostgreSQL and ClickHouse, make the tables of `metrics`; return the names applied per store."""
    async with opened_database(urls.postgres, say=say, max_size=4, timeout_s=30) as database:
        migrations = PostgresMigrations(database)
        control = await migrate_postgres(database)
        warehouse = await migrate_warehouse(
            urls.clickhouse, lock=migrations.locked(), alone=lambda: _without_pipeline(urls.redis, say)
        )
        async with migrations.locked():
            made = await asyncio.to_thread(_make_tables, urls.clickhouse, metrics) if metrics else []
    return {"postgres": [str(one) for one in control], "clickhouse": [*map(str, warehouse), *made]}


@asynccontextmanager
async def _without_pipeline(redis_url: str, say: Say) -> AsyncIterator[None]:
    """Own the streams during the block, as a pipeline does: fail if a pipeline runs, and let none start."""
    await redis_ready(redis_url, say=say)
    lease = StreamsLease(redis_url)
    try:
        await asyncio.to_thread(lease.take)
    except Misconfigured as error:
        raise Misconfigured(
            f"ClickHouse lacks migrations that change views, and no pipeline may run during them: {error}, "
            "run `weir migrate`, and start it again"
        ) from None
    lease.start()
    try:
        yield
    finally:
        await asyncio.to_thread(lease.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredMetrics:
    """The metrics that users registered, and how long their tables keep rows."""

    definitions: tuple[MetricDefinition, ...]
    retention: TierRetention

    @classmethod
    def of(cls, settings: Settings) -> Self:
        found = registered(load_definitions(settings.pipeline.metrics))
        return cls(definitions=found, retention=settings.warehouse.retention)


def _make_tables(clickhouse_url: str, metrics: RegisteredMetrics) -> list[str]:
    with closing(ClickHouseConnection(clickhouse_url)) as connection:
        return make_tables(connection, metrics.definitions, metrics.retention)
