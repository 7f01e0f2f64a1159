"""How fast the warehouse answers: series of one queue and the view of an environment, on full tiers."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import orjson

from weir.api.schemas.history import ENVIRONMENT_GAUGES, QUEUE_GAUGES, metrics_document, rank_document
from weir.embedded.clickhouse import ClickHouseServer
from weir.embedded.ports import free_port
from weir.embedded.supervised import Supervised
from weir.model.durations import DAY_MS
from weir.model.names import EnvironmentRef
from weir.serve.collector import calm_collector
from weir.telemetry.stream_ids import StreamId
from weir.telemetry.switch import ShardSwitch
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.migrate import migrate_warehouse
from weir.warehouse.queries import load_warehouse_queries
from weir.warehouse.reading.periods import Resolution, parse_period, window_for
from weir.warehouse.reading.queues import table_of
from weir.warehouse.reading.top import By
from weir.warehouse.reading.warehouse import Warehouse, open_warehouse
from weir.warehouse.tables import ENVIRONMENTS, QUEUES, TierSet

PERIODS = ("30m", "2h", "24h", "7d", "30d", "400d")
ENVIRONMENT = EnvironmentRef(organization="bench", project="query", environment="full")
_SQL = load_warehouse_queries("benches", "query.sql")
_ROWS_AT_ONCE = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    queues: int
    fine_queues: int
    """How many of them have the 5 s tier too."""
    days: Mapping[Resolution, float]
    rounds: int


FULL = Size(
    queues=1_000,
    fine_queues=50,
    days={Resolution.FIVE_SECONDS: 1.99, Resolution.MINUTE: 30.9, Resolution.HOUR: 399},
    rounds=60,
)
QUICK = Size(
    queues=100,
    fine_queues=5,
    days={Resolution.FIVE_SECONDS: 1.99, Resolution.MINUTE: 8, Resolution.HOUR: 399},
    rounds=20,
)


class IdleTails:
    """Streams from which every event has landed."""

    async def tails(self, metric: str) -> Mapping[int, StreamId]:
        return {}

    async def switches(self) -> Sequence[ShardSwitch]:
        return []


def run(*, quick: bool, **_: Any) -> dict[str, Any]:
    """Fill the tiers, ask, and report the 95th percentile of each question."""
    return asyncio.run(_measure(QUICK if quick else FULL))


async def _measure(size: Size) -> dict[str, Any]:
    async with _server() as url:
        return await measure_on(url, size)


async def measure_on(url: str, size: Size) -> dict[str, Any]:
    """Fill the tiers of an empty, migrated warehouse and ask."""
    started = time.monotonic()
    end_s = int(time.time()) // 3_600 * 3_600
    connection = ClickHouseConnection(url, timeout_s=600)
    await asyncio.to_thread(fill_tiers, connection, size, end_s)
    filled_s = time.monotonic() - started
    warehouse = open_warehouse(url, tails=IdleTails(), shards=1)
    try:
        answers = await _ask(warehouse, size, end_ms=end_s * 1_000)
    finally:
        await warehouse.aclose()
    sizes = tier_sizes(connection)
    connection.close()
    return {
        **answers,
        "bytes_per_row": {row["table"]: round(row["bytes"] / max(row["rows"], 1), 1) for row in sizes},
        "rows": {row["table"]: row["rows"] for row in sizes},
        "queues": size.queues,
        "fill_s": round(filled_s, 1),
    }


def tier_sizes(connection: ClickHouseConnection) -> list[dict[str, Any]]:
    """The rows and bytes of every tier."""
    return connection.rows(_SQL["sizes"].text)


async def _ask(warehouse: Warehouse, size: Size, *, end_ms: int) -> dict[str, Any]:
    """Ask every question `rounds` times about different queues, with JSON answers; and count the points."""
    calm_collector()
    most_points = 0
    series: dict[str, list[float]] = {}
    for period in PERIODS:
        window = window_for(start_ms=end_ms - parse_period(period), end_ms=end_ms, now_ms=end_ms)
        fine = window.resolution is Resolution.FIVE_SECONDS
        names = [f"queue-{n}" for n in range(size.fine_queues if fine else size.queues)]

        async def one(number: int, window: Any = window, names: list[str] = names) -> int:
            queue = ENVIRONMENT.queue(names[number * 7 % len(names)])
            history = await warehouse.history.of_queue(queue, window)
            orjson.dumps(metrics_document(history, gauges=QUEUE_GAUGES))
            return len(history.series)

        series[period], points = await _timed(one, rounds=size.rounds)
        most_points = max(most_points, points)
    environments, points = await _environment_times(warehouse, size, end_ms=end_ms)
    return {
        "series_p95_ms": {period: _p95(times) for period, times in series.items()},
        "series_p50_ms": {period: round(median(times), 1) for period, times in series.items()},
        "environment_p95_ms": max(_p95(times) for times in environments.values()),
        "environment_p95_ms_by_period": {period: _p95(times) for period, times in environments.items()},
        "max_points": max(most_points, points),
    }


async def _environment_times(
    warehouse: Warehouse, size: Size, *, end_ms: int
) -> tuple[dict[str, list[float]], int]:
    """The environment view: its own series and its ten deepest queues, asked together."""
    times: dict[str, list[float]] = {}
    most = 0
    for period in ("30m", "24h", "7d", "30d"):
        window = window_for(start_ms=end_ms - parse_period(period), end_ms=end_ms, now_ms=end_ms)

        async def one(_: int, window: Any = window) -> int:
            history, ranked = await asyncio.gather(
                warehouse.history.of_environment(ENVIRONMENT, window),
                warehouse.top.of(ENVIRONMENT, window, by=By.QUEUE_LENGTH, limit=10),
            )
            document = metrics_document(history, gauges=ENVIRONMENT_GAUGES)
            orjson.dumps({**document, "top_queues": [rank_document(one) for one in ranked]})
            return len(history.series)

        times[period], points = await _timed(one, rounds=max(size.rounds // 3, 10))
        most = max(most, points)
    return times, most


async def _timed(work: Callable[[int], Awaitable[int]], *, rounds: int) -> tuple[list[float], int]:
    """Milliseconds of each round after three rounds of warm-up, and the size of the largest answer."""
    times, most = [], 0
    for number in range(-3, rounds):
        started = time.perf_counter()
        most = max(most, await work(abs(number)))
        if number >= 0:
            times.append((time.perf_counter() - started) * 1_000)
    return times, most


def _p95(times: list[float]) -> float:
    return round(quantiles(times, n=20, method="inclusive")[-1], 1)


def fill_tiers(connection: ClickHouseConnection, size: Size, end_s: int) -> None:
    """Fill the buckets of every tier up to a moment, and wait for the merges that follow."""
    for resolution, days in size.days.items():
        queues = size.fine_queues if resolution is Resolution.FIVE_SECONDS else size.queues
        for parameters in _chunks(QUEUES, resolution, days=days, queues=queues, end_s=end_s):
            connection.command(_SQL["fill_queues"].text, {**parameters, "waits": 3})
        for parameters in _chunks(ENVIRONMENTS, resolution, days=days, queues=1, end_s=end_s):
            connection.command(_SQL["fill_environment"].text, {**parameters, "waits": 100})
    _settle(connection)


def fill_recent(
    connection: ClickHouseConnection, environment: EnvironmentRef, queues: int, span_ms: int
) -> None:
    """Fill the 5 s buckets of some queues up to now, for benches that look at recent times."""
    end_s = int(time.time()) // 5 * 5
    for parameters in _chunks(
        QUEUES, Resolution.FIVE_SECONDS, days=span_ms / DAY_MS, queues=queues, end_s=end_s
    ):
        names = {
            "organization": environment.organization,
            "project": environment.project,
            "environment": environment.environment,
        }
        connection.command(_SQL["fill_queues"].text, {**parameters, **names, "waits": 3})


def _chunks(
    tiers: TierSet, resolution: Resolution, *, days: float, queues: int, end_s: int
) -> Iterator[dict[str, Any]]:
    """The parameters of inserts with a few million rows each, because large parts leave little to merge."""
    step_s = resolution.step_ms // 1_000
    buckets = int(days * 86_400) // step_s
    at_once = max(_ROWS_AT_ONCE // buckets, 1)
    for first in range(0, queues, at_once):
        yield {
            "table": table_of(tiers, resolution),
            "organization": ENVIRONMENT.organization,
            "project": ENVIRONMENT.project,
            "environment": ENVIRONMENT.environment,
            "first": first,
            "buckets": buckets,
            "start_s": end_s - buckets * step_s,
            "step_s": step_s,
            "rows": buckets * min(at_once, queues - first),
        }


def _settle(connection: ClickHouseConnection, *, patience_s: float = 120) -> None:
    """Wait until the merges that the filling caused are over."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until and connection.rows(_SQL["merges"].text)[0]["merges"]:
        time.sleep(0.5)


@asynccontextmanager
async def _server() -> AsyncIterator[str]:
    """Run a migrated warehouse in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        server = ClickHouseServer(Path(folder), port=free_port(), password=secrets.token_urlsafe(12))
        supervised = Supervised(server, log=Path(folder) / "clickhouse.log", report=lambda _: None)
        await supervised.start()
        try:
            await migrate_warehouse(server.url)
            yield server.url
        finally:
            await supervised.stop()
