"""Both stores brought up to date under one lock: PostgreSQL's, because ClickHouse has none."""

from __future__ import annotations

from weir.control.migrate import PostgresMigrations, migrate_postgres
from weir.settings import StoreUrls
from weir.stores.open import opened_database
from weir.stores.ready import Say
from weir.warehouse.migrate import migrate_warehouse


async def migrate_stores(urls: StoreUrls, *, say: Say = lambda _: None) -> dict[str, list[str]]:
    """Migrate PostgreSQL and ClickHouse; the names of what was applied to each."""
    async with opened_database(urls.postgres, say=say, max_size=4, timeout_s=30) as database:
        control = await migrate_postgres(database)
        warehouse = await migrate_warehouse(urls.clickhouse, lock=PostgresMigrations(database).locked())
    return {"postgres": [str(one) for one in control], "clickhouse": [str(one) for one in warehouse]}
