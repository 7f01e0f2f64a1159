"""Sizes: memory in Redis per message and event, bytes on disk per row, life and dead letter.

Payloads in Redis are random, so that compression does not make the figures too small. Their memory is the
difference of what Redis reports before and after.
"""

from __future__ import annotations

import asyncio
import os
import platform
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.dlq_rows import PAYLOAD_BYTES, SQL, Sizes, fill
from benches.lives_rows import bytes_per_life, fill_lives
from benches.query import QUICK as TIERS
from benches.query import fill_tiers, tier_sizes
from benches.servers import bench_stack
from benches.sizing_redis import measure_redis
from weir.control.database import Database
from weir.model.names import EnvironmentRef
from weir.stores.migrations import migrate_stores
from weir.warehouse.connection import ClickHouseConnection

_LETTERS_AT_ONCE = 25_000
ENVIRONMENT = EnvironmentRef(organization="bench", project="sizing", environment="full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    messages: int
    letters: int
    lives: int


FULL = Size(messages=200_000, letters=200_000, lives=2_000_000)
QUICK = Size(messages=20_000, letters=50_000, lives=500_000)


def run(*, quick: bool, **_: Any) -> dict[str, Any]:
    """Fill every store with real rows, and ask the store for their size."""
    # PostgreSQL may run as another account, which must be able to enter the folder.
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        Path(folder).chmod(0o755)
        return asyncio.run(_measure(Path(folder), QUICK if quick else FULL))


async def _measure(folder: Path, size: Size) -> dict[str, Any]:
    async with bench_stack(folder) as stack:
        await migrate_stores(stack.urls)
        return {
            "redis_bytes": await measure_redis(stack.urls.redis, ENVIRONMENT, messages=size.messages),
            "postgres_bytes": await _letters(stack.urls.postgres, size.letters),
            "clickhouse_bytes": await asyncio.to_thread(_warehouse, stack.urls.clickhouse, size.lives),
            "cpus": os.cpu_count(),
            "machine": platform.machine(),
        }


async def _letters(url: str, count: int) -> dict[str, float]:
    """Bytes per dead letter, with its indexes."""
    async with Database(url, max_size=4, timeout_s=60) as database:
        await fill(database, ENVIRONMENT, Sizes(rows=count, purge=0, redrive=0, chunk=_LETTERS_AT_ONCE))
        found = await database.fetch_one(SQL["table_size"])
    assert found is not None
    total = round((found["heap"] + found["indexes"]) / count)
    return {"dead_letter": total, "dead_letter_payload": PAYLOAD_BYTES}


def _warehouse(url: str, lives: int) -> dict[str, float]:
    """Bytes per life, and per row of every tier for queues that are always busy."""
    with closing(ClickHouseConnection(url, timeout_s=600)) as connection:
        fill_lives(connection, lives)
        fill_tiers(connection, TIERS, int(time.time()) // 3_600 * 3_600)
        tiers = {
            row["table"]: round(row["bytes"] / row["rows"], 1)
            for row in tier_sizes(connection)
            if row["rows"]
        }
        return {"life": round(bytes_per_life(connection), 1), **tiers}
