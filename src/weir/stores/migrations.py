"""Both stores brought up to date under one lock: PostgreSQL's, because ClickHouse has none."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from typing import Self

from weir.control.migrate import PostgresMigrations, migrate_postgres
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.metric_migration import make_tables
from weir.pipeline.registry import load_definitions, registered
from weir.settings import Settings, StoreUrls
from weir.stores.open import opened_database
from weir.stores.ready import Say
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.migrate import migrate_warehouse
from weir.warehouse.tables import TierRetention


async def migrate_stores(
    urls: StoreUrls, *, metrics: RegisteredMetrics | None = None, say: Say = lambda _: None
) -> dict[str, list[str]]:
    """Migrate PostgreSQL and ClickHouse, and make the tables of `metrics`; what was applied to each."""
    async with opened_database(urls.postgres, say=say, max_size=4, timeout_s=30) as database:
        migrations = PostgresMigrations(database)
        control = await migrate_postgres(database)
        warehouse = await migrate_warehouse(urls.clickhouse, lock=migrations.locked())
        async with migrations.locked():
            made = await asyncio.to_thread(_make_tables, urls.clickhouse, metrics) if metrics else []
    return {"postgres": [str(one) for one in control], "clickhouse": [*map(str, warehouse), *made]}


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
