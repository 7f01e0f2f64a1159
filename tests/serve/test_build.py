"""What a process is built with follows its settings."""

from __future__ import annotations

from pathlib import Path

from weir.model.durations import DAY_MS
from weir.serve.build import open_process
from weir.settings import EmbeddedSettings, Settings, StoreUrls, WarehouseSettings


async def test_charts_choose_their_tier_by_how_long_the_settings_keep_it(
    redis_url: str, database_url: str, warehouse_url: str, tmp_path: Path
) -> None:
    settings = Settings(
        redis_url=redis_url,
        embedded=EmbeddedSettings(data_dir=tmp_path),
        warehouse=WarehouseSettings(keep_5s_days=5),
    )
    urls = StoreUrls(redis=redis_url, postgres=database_url, clickhouse=warehouse_url)
    async with open_process(settings, urls, accept_loss=True) as process:
        warehouse = process.services.warehouse
    assert warehouse is not None
    assert list(warehouse.retention_ms.values()) == [5 * DAY_MS, 31 * DAY_MS, 400 * DAY_MS]
