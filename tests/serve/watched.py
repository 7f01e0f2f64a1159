"""A whole API process on a watched event loop inside the test process, over real stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg

from support.loop_watchdog import LoopThread, Watchdog
from support.servers import RunningServer, redis_server, start_server
from support.urls import with_database
from support.warehouse_template import WarehouseTemplate
from weir.serve.address import ADMIN_FILE, OPERATOR_FILE
from weir.serve.run import served
from weir.settings import ApiSettings, EmbeddedSettings, Settings, StoreUrls


@dataclass(frozen=True, kw_only=True)
class WatchedApi:
    """Its address and tokens, and its loop with the watchdog."""

    port: int
    admin: str
    operator: str
    loop: LoopThread
    watchdog: Watchdog
    urls: StoreUrls
    redis: RunningServer


@contextmanager
def watched_api(
    folder: Path, *, postgres_url: str, template: str, warehouses: WarehouseTemplate
) -> Iterator[WatchedApi]:
    """Serve while the block runs, with a database and a Redis of its own."""
    name, watchdog = f"watched_{uuid4().hex}", Watchdog()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    redis = start_server(lambda port: redis_server(folder / "redis", port=port), log_folder=folder)
    try:
        with warehouses.copied() as warehouse, LoopThread(watchdog) as loop:
            urls = StoreUrls(
                redis=redis.url, postgres=with_database(postgres_url, name), clickhouse=warehouse
            )
            settings = Settings(api=ApiSettings(port=0), embedded=EmbeddedSettings(data_dir=folder))
            with loop.entered(lambda: served(settings, urls, token_dir=folder)) as url:
                yield WatchedApi(
                    port=int(url.rpartition(":")[2]),
                    admin=(folder / ADMIN_FILE).read_text().strip(),
                    operator=(folder / OPERATOR_FILE).read_text().strip(),
                    loop=loop,
                    watchdog=watchdog,
                    urls=urls,
                    redis=redis,
                )
    finally:
        redis.stop()
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
