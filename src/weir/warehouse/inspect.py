"""Asks ClickHouse for its version, its size and its free disk space, for `weir doctor`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from weir.control.migrate import outstanding, read_migrations
from weir.model.wording import amount
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.migrate import PACKAGE, ClickHouseMigrations

_STATE = """
SELECT
    version() AS version,
    (SELECT sum(bytes_on_disk) FROM system.parts WHERE active) AS size_bytes,
    (SELECT min(free_space) FROM system.disks) AS free_bytes
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickHouseState:
    version: str
    size_bytes: int
    free_bytes: int
    missing_migrations: int

    def problems(self) -> list[str]:
        if self.missing_migrations:
            return [f"ClickHouse lacks {amount(self.missing_migrations, 'migration')}; run `weir migrate`"]
        return []


async def inspect_clickhouse(url: str) -> ClickHouseState:
    # Shorter than the usual 30 s: somebody waits in front of a terminal.
    connection = await asyncio.to_thread(ClickHouseConnection, url, timeout_s=5)
    try:
        (row,) = await asyncio.to_thread(connection.rows, _STATE)
        applied = await ClickHouseMigrations(connection).read_applied()
    finally:
        connection.close()
    missing = outstanding(applied, read_migrations(PACKAGE), store="ClickHouse")
    return ClickHouseState(**row, missing_migrations=len(missing))
