"""Fixtures for every room: real servers, private namespaces, injected time."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from support.debian import SERVERS, fetched_server
from support.order import sort_by_length
from support.redis_cluster import RunningCluster
from support.running_api import RunningApi, running_api
from support.servers import RunningServer, TestServers, quick_folder, redis_program, start_server
from support.urls import with_database
from support.warehouse_template import WarehouseTemplate
from weir.control.database import Database
from weir.control.migrate import migrate_postgres
from weir.embedded.postgres import PostgresServer
from weir.embedded.redis_binary import SETTING, redis_binary
from weir.model.names import EnvironmentRef
from weir.serve.collector import calm_collector
from weir.testing.clocks import ManualClock

_TEMPLATE = "weir_template"
_CACHE = Path(__file__).parents[1] / ".servers"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults", action="store_true", help="run the long fault and slow tests too")
    parser.addoption(
        "--redis-server",
        choices=sorted(SERVERS),
        help="test on this server instead of the wheel's; it is fetched once",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make every Weir process of this run use the chosen Redis server."""
    name = config.getoption("--redis-server")
    if name is not None:
        os.environ[SETTING] = str(fetched_server(name, cache=_CACHE))


def pytest_report_header() -> str:
    found = redis_binary(redis_program())
    return f"redis: {found} ({found.path})"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Thousands of collected tests stay until the end. The garbage collector would walk through all of them,
    # again and again, and take 0.7 s each time.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        calm_collector()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        # One of several test processes.
        sort_by_length(items)
    if config.getoption("--faults"):
        return
    # Deselected, not skipped: a skip in an ordinary run always means that something is missing.
    long = [item for item in items if item.get_closest_marker("slow") or item.get_closest_marker("fault")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="module", autouse=True)
def collected_garbage() -> Iterator[None]:
    """Make a test file fail if it leaves something open: otherwise a later test would fail for it."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def servers() -> Iterator[TestServers]:
    """The servers of this test process; each starts when a test first asks for it."""
    servers = TestServers()
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def redis_url(servers: TestServers) -> str:
    return servers.redis.url


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RunningCluster]:
    """A Redis Cluster of three nodes."""
    # In memory: a node writes its view of the cluster to its file and waits for the disk.
    with quick_folder() as folder:
        cluster = RunningCluster(folder)
        yield cluster
        cluster.stop()


@pytest.fixture(scope="session")
def postgres_url(servers: TestServers) -> str:
    return servers.postgres.url


@pytest.fixture
def postgres(quick_path: Path) -> Iterator[RunningServer]:
    """A PostgreSQL of the test's own, with fsync on, which the test may kill."""
    folder = quick_path
    server = start_server(
        lambda port: PostgresServer(folder / "pg", port=port, password=secrets.token_urlsafe(8)),
        log_folder=folder,
    )
    yield server
    server.stop()


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A folder for data of servers, in memory if there is room; it is removed after the test."""
    with quick_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def clickhouse_url(servers: TestServers) -> str:
    return servers.clickhouse.url


@pytest.fixture(scope="session")
def migrated_template(postgres_url: str) -> str:
    """The name of a migrated database that others are copied from."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {_TEMPLATE}")

    async def migrate() -> None:
        async with Database(with_database(postgres_url, _TEMPLATE), max_size=2) as database:
            await migrate_postgres(database)

    asyncio.run(migrate())
    return _TEMPLATE


@pytest.fixture
def database_url(postgres_url: str, migrated_template: str) -> Iterator[str]:
    """A migrated PostgreSQL database of the test's own."""
    name = f"t_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {migrated_template} STRATEGY FILE_COPY")
    yield with_database(postgres_url, name)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An open `Database` on a migrated PostgreSQL database of the test's own."""
    async with Database(database_url) as database:
        yield database


@pytest.fixture(scope="session")
def warehouses(clickhouse_url: str) -> WarehouseTemplate:
    """Makes migrated ClickHouse databases."""
    return WarehouseTemplate(clickhouse_url)


@pytest.fixture
def warehouse_url(warehouses: WarehouseTemplate) -> Iterator[str]:
    """A migrated ClickHouse database of the test's own."""
    with warehouses.copied() as url:
        yield url


@pytest.fixture
def environment() -> EnvironmentRef:
    """A fresh tenant: names that no other test uses, awkward on purpose."""
    mark = uuid4().hex[:12]
    return EnvironmentRef(organization=f"org:{mark}", project="pro/ject *", environment=f"prod {mark} ✓")


@pytest.fixture(scope="session")
def api_process(
    redis_url: str,
    postgres_url: str,
    migrated_template: str,
    warehouses: WarehouseTemplate,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningApi]:
    """One API for all tests of commands; each has tenants of its own in it."""
    name = f"api_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {migrated_template} STRATEGY FILE_COPY")
    # A database of its own in Redis too: its sweepers follow the real time, other tests set their own time.
    redis = f"{redis_url.rpartition('/')[0]}/1"
    stores = {"redis_url": redis, "postgres_url": with_database(postgres_url, name)}
    folder = tmp_path_factory.mktemp("api")
    with warehouses.copied() as warehouse, running_api(folder, clickhouse_url=warehouse, **stores) as running:
        yield running
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def api(api_process: RunningApi, monkeypatch: pytest.MonkeyPatch) -> RunningApi:
    """The API, which commands find in the environment."""
    monkeypatch.setenv("WEIR_URL", api_process.url)
    monkeypatch.setenv("WEIR_TOKEN", api_process.token)
    return api_process


@pytest.fixture
def manual_clock() -> ManualClock:
    return ManualClock()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let reports travel: halves of surrogate pairs in what a test logged would end its test process."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report
