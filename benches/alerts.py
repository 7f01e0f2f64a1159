"""How long one evaluation takes: a thousand rules over a thousand queues, on real stores."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benches.query import IdleTails, fill_recent
from benches.servers import bench_stack
from weir.alerts.alert_metrics import CATALOGUE, About, Metric
from weir.alerts.evaluator import Evaluator
from weir.alerts.rule import draft_of
from weir.alerts.rules import AlertRules
from weir.alerts.situations import DefinedLifetimes
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.migrate import migrate_postgres
from weir.model.names import EnvironmentRef
from weir.spec.ir import QueueSpec
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.migrate import migrate_warehouse
from weir.warehouse.reading.warehouse import Warehouse, open_warehouse

ENVIRONMENT = EnvironmentRef(organization="bench", project="alerts", environment="full")
_WINDOWS_MS = (60_000, 300_000, 900_000)
_WIDE = 10
"""This many of the rules watch every queue."""
_HISTORY_MS = 3_600_000


def run(*, quick: bool, **_: Any) -> dict[str, Any]:
    """Evaluate on fresh stores: once while a tenth of the rules begin to fire, then several times again."""
    return asyncio.run(_measure(rules=200 if quick else 1_000, queues=200 if quick else 1_000))


async def _measure(*, rules: int, queues: int) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        database, broker, warehouse, url = await _stores(stack)
        await asyncio.to_thread(
            fill_recent, ClickHouseConnection(url, timeout_s=300), ENVIRONMENT, queues, _HISTORY_MS
        )
        await _prepare(database, broker, rules=rules, queues=queues)
        evaluator = Evaluator(
            database=database, warehouse=warehouse, broker=broker, lifetimes=DefinedLifetimes(database)
        )
        times, fired = [], 0
        for _ in range(6):
            started = time.perf_counter()
            outcome = await evaluator.evaluate_once()
            times.append(time.perf_counter() - started)
            fired += outcome.fired if outcome else 0
    return {
        "rules": rules,
        "queues": queues,
        "evaluation_s": round(max(times), 3),
        "first_s": round(times[0], 3),
        "steady_s": round(sorted(times[1:])[len(times[1:]) // 2], 3),
        "fired": fired,
    }


async def _prepare(database: Database, broker: RedisBroker, *, rules: int, queues: int) -> None:
    for number in range(queues):
        await broker.define(ENVIRONMENT.queue(f"queue-{number}"), QueueSpec(name=f"queue-{number}"))
    metrics = [metric for metric in Metric if CATALOGUE[metric].about is About.QUEUE]
    register = AlertRules(database)
    for number in range(rules):
        wide = number < _WIDE
        draft = draft_of(
            name=f"rule-{number}",
            metric=metrics[number % len(metrics)].value,
            operator=">",
            # A tenth of the rules are low enough to fire at once.
            threshold=0.5 if metrics[number % len(metrics)] is Metric.ERROR_RATE else _threshold(number),
            queue=None if wide else f"queue-{number % queues}",
            window_ms=_WINDOWS_MS[number % len(_WINDOWS_MS)],
        )
        await register.create(ENVIRONMENT, draft)


def _threshold(number: int) -> float:
    return 0.0 if number % 10 == 0 else 1e9


async def _stores(stack: AsyncExitStack) -> tuple[Database, RedisBroker, Warehouse, str]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-bench-")))
    servers = bench_stack(folder / "data")
    await servers.start()
    stack.push_async_callback(servers.stop)
    urls = servers.urls
    await migrate_warehouse(urls.clickhouse)
    database = await stack.enter_async_context(Database(urls.postgres))
    await migrate_postgres(database)
    broker = RedisBroker(RedisConnection(url=urls.redis), shards=1)
    stack.push_async_callback(broker.aclose)
    warehouse = open_warehouse(urls.clickhouse, tails=IdleTails(), shards=1)
    stack.push_async_callback(warehouse.aclose)
    return database, broker, warehouse, urls.clickhouse
