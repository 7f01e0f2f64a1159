"""`weir bench outbox`: how fast a relay empties a full outbox, and the cost of a push in a transaction.

The relay is `weir outbox relay`, the API is one `weir serve`, and all processes share the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
import uvloop

from benches.answering import answering
from benches.children import child
from benches.servers import bench_stack
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tokens import Tokens
from weir.embedded.ports import free_port
from weir.outbox import migrate, push
from weir.serve.bootstrap import ADMIN, DEFAULT, keep_token
from weir.settings import StoreUrls
from weir.spec.ir import QueueSpec
from weir.stores.migrations import migrate_stores

QUEUE = "bench"
KEYS = 10_000
PAYLOAD = {"order": 4711, "customer": "customer-7", "amount": 12.5, "lines": ["a", "b", "c"]}
_FILL = """
INSERT INTO weir_outbox.messages (id, queue, key, payload, is_json)
SELECT gen_random_uuid(), %(queue)s, 'customer-' || (n %% %(keys)s), %(payload)s, true
FROM generate_series(1, %(rows)s) AS n
"""
_COMMIT = 1_000
"""Messages per transaction while the outbox is filled."""


def run(*, quick: bool, rows: int | None = None, **_: Any) -> dict[str, Any]:
    """All figures; with `quick` within a minute."""
    return uvloop.run(_run(rows=rows or (50_000 if quick else 200_000), rounds=3))


async def _run(*, rows: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as name:
        folder = Path(name)
        async with bench_stack(folder) as stack:
            await migrate_stores(stack.urls)
            await migrate(stack.urls.postgres)
            token = await _prepare(stack.urls, folder)
            port = free_port()
            serve = ("-m", "weir.cli", "serve", "--data-dir", str(folder), "--port", str(port))
            async with child(*serve, folder=folder, WEIR_API__LOG_LEVEL="ERROR"):
                url = await answering(port)
                rates = [
                    await _drain(stack.urls.postgres, folder, url, token, rows=rows) for _ in range(rounds)
                ]
            plain_us, pushing_us = await asyncio.to_thread(_transaction_costs, stack.urls.postgres)
    return {
        "relayed_per_s": round(statistics.median(rates)),
        "relayed_per_s_spread": [round(min(rates)), round(max(rates))],
        "transaction_us": plain_us,
        "transaction_with_push_us": pushing_us,
        "rows": rows,
        "keys": KEYS,
        "payload_bytes": len(json.dumps(PAYLOAD)),
        "rounds": rounds,
        "cpus": os.cpu_count(),
    }


async def _prepare(urls: StoreUrls, folder: Path) -> str:
    async with Database(urls.postgres, max_size=2) as database:
        await QueueDefinitions(database).define(DEFAULT.queue(QUEUE), QueueSpec(name=QUEUE))
        return await keep_token(Tokens(database), folder / "admin.token", ADMIN)


async def _drain(database: str, folder: Path, url: str, token: str, *, rows: int) -> float:
    """Fill the outbox, start a relay, and return rows per second from the first relayed row to the last."""
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        values = {"queue": QUEUE, "keys": KEYS, "rows": _COMMIT, "payload": json.dumps(PAYLOAD).encode()}
        for _ in range(rows // _COMMIT):
            await connection.execute(_FILL, values)
        relay = ("-m", "weir.cli", "outbox", "relay", "--database", database)
        async with child(*relay, folder=folder, WEIR_URL=url, WEIR_TOKEN=token):
            left = await _until(connection, lambda waiting: waiting < rows)
            started_s = time.monotonic()
            await _until(connection, lambda waiting: waiting == 0)
            return left / (time.monotonic() - started_s)


async def _until(connection: psycopg.AsyncConnection[Any], condition: Any) -> int:
    while True:
        cursor = await connection.execute("SELECT count(*) FROM weir_outbox.messages")
        (waiting,) = await cursor.fetchone() or (0,)
        if condition(waiting):
            return int(waiting)
        await asyncio.sleep(0.05)


def _transaction_costs(database: str, *, times: int = 2_000) -> tuple[int, int]:
    """The median microseconds of a small transaction without and with a push, in turns."""
    taken: tuple[list[float], list[float]] = [], []
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bench_orders (id bigint, customer text)")
        connection.commit()
        for number in range(times):
            started_s = time.perf_counter()
            connection.execute("INSERT INTO bench_orders VALUES (%s, 'x')", (number,))
            if number % 2:
                push(connection, QUEUE, PAYLOAD, key=f"customer-{number % KEYS}")
            connection.commit()
            taken[number % 2].append(time.perf_counter() - started_s)
    plain, pushing = (round(statistics.median(times_s) * 1_000_000) for times_s in taken)
    return plain, pushing
