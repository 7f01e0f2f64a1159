"""Each store stopped in turn: every route answers within the time that the reference states."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import psycopg
import pytest

from serve.routes import REQUESTS, Asked, prepare
from support.api_process import ApiProcess
from support.processes import frozen, frozen_tree
from support.running_api import key_file
from support.servers import RunningServer, TestServers, redis_server, start_server
from weir.api.app import describe
from weir.control.database import Database
from weir.control.tokens import Tokens
from weir.serve.bootstrap import ADMIN, OPERATOR, keep_token

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "deadlines.md"
STORES = ("PostgreSQL", "Redis", "ClickHouse")
ONE_BACKEND = "one backend"
BEFORE_S = 3.0
EVERY_S = 1.0
SLACK_S = 2.0
ROUTE = re.compile(r"`((?:GET|POST|PUT|PATCH|DELETE) [^`]+)`")
IMPROPER = (400, 401, 403, 405, 415, 422, 500)
Stop = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, kw_only=True)
class World:
    """An API process over stores that can be stopped."""

    client: httpx2.AsyncClient
    operator: str
    headers: dict[str, str]
    stops: dict[str, Stop]


@dataclass
class Waits:
    """The longest waits of each route, before and after the stop, and how often each was done."""

    stopped_at_s: float = math.inf
    before_s: float = 0.0
    longest_s: dict[str, float] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)

    def note(self, route: str, status: int, took_s: float) -> None:
        if time.monotonic() < self.stopped_at_s:
            self.before_s = max(self.before_s, took_s)
        else:
            self.longest_s[route] = max(self.longest_s.get(route, 0.0), took_s)
        self.done[route] += status < 300


def promised() -> dict[str, dict[str, float]]:
    """The table of the reference: the longest wait of each route with each store stopped."""
    waits: dict[str, dict[str, float]] = {}
    for line in PAGE.read_text().splitlines():
        first, *cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        for route in ROUTE.findall(first) if len(cells) == len(STORES) else ():
            assert route not in waits, f"{route} stands in the table twice"
            waits[route] = {store: _seconds(cell) for store, cell in zip(STORES, cells, strict=True)}
    return waits


def _seconds(cell: str) -> float:
    return 0.0 if cell == "–" else float(cell.removesuffix(" s"))


def documented() -> set[str]:
    return {
        f"{method.upper()} {path}"
        for path, methods in describe()["paths"].items()
        for method, operation in methods.items()
        if "operationId" in operation
    }


def test_the_table_names_every_route_and_every_route_is_asked() -> None:
    assert set(promised()) == documented() == {one.route for one in REQUESTS}


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RunningServer]:
    server = start_server(lambda port: redis_server(tmp_path / "redis", port=port), log_folder=tmp_path)
    yield server
    server.stop()


@pytest.fixture
async def world(
    tmp_path: Path, servers: TestServers, own_redis: RunningServer, database_url: str, warehouse_url: str
) -> AsyncIterator[World]:
    async with Database(database_url) as database:
        token = await keep_token(Tokens(database), tmp_path / "admin.token", ADMIN)
        operator = await keep_token(Tokens(database), tmp_path / "operator.token", OPERATOR)
    environment = {
        "WEIR_REDIS_URL": own_redis.url,
        "WEIR_POSTGRES_URL": database_url,
        "WEIR_CLICKHOUSE_URL": warehouse_url,
        "WEIR_SECRETS__KEY_FILE": str(key_file(tmp_path)),
    }
    process = ApiProcess(tmp_path, environment)
    try:
        await process.start()
        async with httpx2.AsyncClient(
            base_url=process.url,
            headers={"authorization": f"Bearer {token}"},
            timeout=120,
            limits=httpx2.Limits(max_connections=None),
        ) as client:
            yield World(
                client=client,
                operator=operator,
                headers=await prepare(client),
                stops={
                    "PostgreSQL": lambda: frozen_tree(servers.postgres.pid),
                    "Redis": lambda: frozen_tree(own_redis.pid),
                    "ClickHouse": lambda: frozen_tree(servers.clickhouse.pid),
                    ONE_BACKEND: lambda: frozen(_backend(database_url)),
                },
            )
    finally:
        await process.kill()


def _backend(database_url: str) -> int:
    """One that serves the control plane."""
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'weir-api' "
            "AND datname = current_database() LIMIT 1"
        ).fetchone()
    assert row is not None
    return int(row[0])


async def ask(world: World, request: Asked) -> tuple[int, float]:
    """The status and how long it took to come; of a stream, its beginning."""
    headers = {**world.headers, **({"authorization": f"Bearer {world.operator}"} if request.operator else {})}
    started = time.monotonic()
    async with world.client.stream(
        request.method, request.path, json=request.body, headers=headers
    ) as answer:
        return answer.status_code, time.monotonic() - started


async def ask_until(world: World, request: Asked, waits: Waits, until_s: float) -> None:
    # Not all at once, again and again: what is measured is the store, not this machine.
    await asyncio.sleep(EVERY_S * REQUESTS.index(request) / len(REQUESTS))
    while time.monotonic() < until_s:
        status, took_s = await ask(world, request)
        assert status != 500, request
        waits.note(request.route, status, took_s)
        await asyncio.sleep(EVERY_S)


async def measured(world: World, store: str, *, stop_s: float) -> Waits:
    """Ask every route side by side, again and again, before and while a store is stopped."""
    for request in REQUESTS:
        status, _ = await ask(world, request)
        assert status not in IMPROPER, (request, status)
    waits = Waits()
    async with asyncio.TaskGroup() as tasks:
        until_s = time.monotonic() + BEFORE_S + stop_s
        for request in REQUESTS:
            tasks.create_task(ask_until(world, request, waits, until_s))
        await asyncio.sleep(BEFORE_S)
        with world.stops[store]():
            waits.stopped_at_s = time.monotonic()
            await asyncio.sleep(stop_s)
    return waits


def check(waits: Waits, store: str) -> None:
    """Nobody waited longer than promised, and than it took before, with everything asked at once."""
    column = "PostgreSQL" if store == ONE_BACKEND else store
    limits = {route: one[column] + waits.before_s + SLACK_S for route, one in promised().items()}
    slowest = sorted(waits.longest_s.items(), key=lambda one: -one[1])
    print(f"{store}: before it stopped the longest wait was {waits.before_s:.2f} s")
    for route, took_s in slowest[:10]:
        print(f"  {took_s:5.2f} s (at most {limits[route]:5.2f}) {route}")
    assert {route: took_s for route, took_s in slowest if took_s > limits[route]} == {}


async def tokens_made(world: World) -> int:
    """How many tokens there are, once the stores answer again."""
    async with asyncio.timeout(30):
        while (answer := await world.client.get("/api/v1/tokens")).status_code != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return len(answer.json()["items"])


@pytest.mark.fault
@pytest.mark.parametrize("store", [*STORES, ONE_BACKEND])
async def test_every_route_answers_in_time_while_a_store_hangs(world: World, store: str) -> None:
    before = await tokens_made(world)
    waits = await measured(world, store, stop_s=20)
    check(waits, store)
    # One more was made by the round that tries every request before the clock runs.
    assert await tokens_made(world) - before == waits.done["POST /api/v1/tokens"] + 1


async def test_every_route_answers_in_time_while_postgresql_hangs_for_a_moment(world: World) -> None:
    check(await measured(world, "PostgreSQL", stop_s=2), "PostgreSQL")
