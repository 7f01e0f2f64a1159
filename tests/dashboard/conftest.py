"""A real Chromium on a real server: the whole API with its dashboard, and a tenant to look at.

The server and the browser are started once; every test has a tenant of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from support.running_api import key_file
from support.urls import with_database
from support.warehouse_template import WarehouseTemplate
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.principals import Role
from weir.control.tenants import Tenants
from weir.control.tokens import NewToken, Tokens
from weir.model.names import EnvironmentRef
from weir.serve.run import served
from weir.settings import ApiSettings, EmbeddedSettings, SecretSettings, Settings, StoreUrls
from weir.warehouse.connection import ClickHouseConnection

from .world import Site, World

# Pages refresh every few seconds, and the machine may be busy.
expect.set_options(timeout=20_000)

LAUNCH_MS = 120_000
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def stores(
    redis_url: str, postgres_url: str, warehouses: WarehouseTemplate, migrated_template: str
) -> Iterator[StoreUrls]:
    """Stores that the tests of a module share."""
    name = f"t_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {migrated_template} STRATEGY FILE_COPY")
    with warehouses.copied() as warehouse:
        yield StoreUrls(redis=redis_url, postgres=with_database(postgres_url, name), clickhouse=warehouse)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(stores: StoreUrls, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Everything that `weir serve` runs; its address."""
    folder = tmp_path_factory.mktemp("weir")
    settings = Settings(
        api=ApiSettings(port=0),
        embedded=EmbeddedSettings(data_dir=folder),
        secrets=SecretSettings(key_file=key_file(folder)),
        trace_url="https://traces.example/{trace_id}",
    )
    async with served(settings, stores) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "Chromium is missing; `./weir test` installs Debian's package `chromium`"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=list(CHROMIUM_FLAGS), timeout=LAUNCH_MS
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def site(server: str, stores: StoreUrls) -> Site:
    environment = EnvironmentRef(organization=f"org-{uuid4().hex[:8]}", project="shop", environment="prod")
    async with Database(stores.postgres, max_size=2) as database:
        await Tenants(database).ensure(environment)
        return Site(
            url=server,
            urls=stores,
            environment=environment,
            admin=await new_token(database, environment),
            reader=await new_token(database, environment, role=Role.READ),
        )


async def new_token(
    database: Database,
    environment: EnvironmentRef,
    *,
    role: Role = Role.ADMIN,
    lifetime_ms: int | None = None,
) -> str:
    new = NewToken(name="test", role=role, organization=environment.organization, lifetime_ms=lifetime_ms)
    text, _ = await Tokens(database).create(new)
    return text


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, site: Site) -> AsyncIterator[Page]:
    """A signed-in page; any error in its scripts fails the test."""
    async with opened(browser) as page:
        await page.goto(f"{site.url}/#/sign-in?token={site.admin}")
        await page.get_by_role("heading", name="prod").wait_for()
        yield page


@asynccontextmanager
async def opened(browser: Browser, **options: Any) -> AsyncIterator[Page]:
    """A page of its own; an error in its scripts fails the test."""
    context = await browser.new_context(**options)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    await context.close()
    assert not complaints, complaints


@pytest_asyncio.fixture(loop_scope="module")
async def world(site: Site) -> AsyncIterator[World]:
    broker = RedisBroker(RedisConnection(url=site.urls.redis), shards=Settings().shards)
    warehouse = ClickHouseConnection(site.urls.clickhouse)
    yield World(site=site, broker=broker, warehouse=warehouse)
    warehouse.close()
    await broker.aclose()
