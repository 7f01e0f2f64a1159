"""Both stores brought up to date under one lock: PostgreSQL's, because ClickHouse has none."""

from __future__ import annotations

from weir.control.database import Database
from weir.control.migrate import PostgresMigrations, migrate_postgres
from weir.settings import StoreUrls
from weir.warehouse.migrate import migrate_warehouse


async def migrate_stores(urls: StoreUrls) -> dict[str, list[str]]:
    """Migrate PostgreSQL and ClickHouse; the names of what was applied to each."""
    async with Database(urls.postgres, max_size=4, timeout_s=30) as database:
        control = await migrate_postgres(database)
        warehouse = await migrate_warehouse(urls.clickhouse, lock=PostgresMigrations(database).locked())
    return {"postgres": [str(one) for one in control], "clickhouse": [str(one) for one in warehouse]}
