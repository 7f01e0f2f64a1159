"""How fast a life is found by its id among many, in an embedded ClickHouse."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import quantiles
from typing import Any

from weir.embedded.clickhouse import ClickHouseServer
from weir.embedded.ports import free_port
from weir.embedded.supervised import Supervised
from weir.model.ids import MessageId
from weir.model.names import EnvironmentRef
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.migrate import migrate_warehouse
from weir.warehouse.queries import load_warehouse_queries
from weir.warehouse.reading.lives import LifeReader
from weir.warehouse.reading.reader import Reader

ENVIRONMENT = EnvironmentRef(organization="bench", project="lives", environment="ended")
_SQL = load_warehouse_queries("benches", "lives_rows.sql")
_ROWS_AT_ONCE = 500_000


async def find_among(rows: int, folder: Path, *, asked: int) -> dict[str, Any]:
    """The 95th percentile of the time to find lives by id, by key and by time."""
    server = Supervised(
        ClickHouseServer(folder, port=free_port(), password=secrets.token_hex(8)),
        log=folder.parent / "clickhouse.log",
        report=lambda _: None,
    )
    await server.start()
    try:
        url = server.server.url
        await migrate_warehouse(url)
        with closing(ClickHouseConnection(url, timeout_s=300)) as connection:
            fill_lives(connection, rows)
            ids = [row["id"] for row in connection.rows(_SQL["sample_of_lives"].text, {"asked": asked})]
        return await _ask(url, [MessageId(str(one)) for one in ids])
    finally:
        await server.stop()


def fill_lives(connection: ClickHouseConnection, rows: int) -> None:
    """Insert lives of 20 queues over 20 days."""
    for start in range(0, rows, _ROWS_AT_ONCE):
        count = min(_ROWS_AT_ONCE, rows - start)
        connection.command(_SQL["fill_lives"].text, {"start": start, "count": count, "total": rows})


def bytes_per_life(connection: ClickHouseConnection) -> float:
    """Bytes per life on disk, after ClickHouse has merged the parts."""
    connection.command(_SQL["merge_lives"].text)
    (found,) = connection.rows(_SQL["size_of_lives"].text)
    return float(found["bytes"] / found["rows"])


async def _ask(url: str, ids: Sequence[MessageId]) -> dict[str, Any]:
    reader = Reader(url)
    lives, queue = LifeReader(reader), ENVIRONMENT.queue("q3")
    now_ms = time.time_ns() // 1_000_000
    try:
        assert await lives.find(ENVIRONMENT, ids[0]) is not None
        return {
            "find_p95_ms": await p95(lambda one: lives.find(ENVIRONMENT, one), ids),
            "find_by_key_p95_ms": await p95(lambda one: lives.of_key(ENVIRONMENT, _some_key(one)), ids),
            "list_lives_p95_ms": await p95(
                lambda _: lives.of_queue(queue, from_ms=now_ms - 86_400_000, to_ms=now_ms), ids
            ),
        }
    finally:
        await reader.aclose()


def _some_key(message_id: MessageId) -> str:
    """One of the ten thousand keys that `fill_lives` draws from."""
    return f"key-{int(message_id[-4:], 16) % 10_000:04x}"


async def p95(call: Callable[[Any], Awaitable[Any]], asked: Sequence[Any]) -> float:
    """The 95th percentile of the times of calls that follow each other, in milliseconds."""
    times = []
    for one in asked:
        started = time.perf_counter()
        await call(one)
        times.append(time.perf_counter() - started)
    return round(quantiles(times, n=20)[-1] * 1_000, 2)
