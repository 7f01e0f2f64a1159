"""An API over real stores, two tenants with tokens of their own, and a client for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from uuid import uuid4

import httpx2
import psycopg
import pytest

from support.urls import with_database
from weir.api.app import create_app
from weir.api.edge import Edge
from weir.api.services import Services
from weir.broker.broker import Broker
from weir.broker.direct_users import DirectUsers
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.channels.channels import Channels
from weir.control.annotations import Annotations
from weir.control.audit_log import AuditLog
from weir.control.authentication import CachedAuthenticator
from weir.control.changes import Changes
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tenants import Tenants
from weir.control.tokens import Tokens
from weir.deadletters.services import open_dead_letters
from weir.exchange.attempt import DirectPusher
from weir.exchange.resume import ResumingPusher
from weir.exchange.settle import DirectSettler
from weir.model.durations import HOUR_MS
from weir.serve.server import bind, listening
from weir.workers.timeline import Timelines

from .harness import PUSH, Tenant, define, make_tenant


@pytest.fixture(scope="session")
def database_url(postgres_url: str, migrated_template: str) -> Iterator[str]:
    """One migrated database for all tests of the API: each has tenants of its own in it."""
    name = f"api_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {migrated_template} STRATEGY FILE_COPY")
    yield with_database(postgres_url, name)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def broker(redis_url: str) -> AsyncIterator[Broker]:
    broker = RedisBroker(RedisConnection(url=redis_url))
    for shard in range(broker.shards):
        # As every serving process does again and again; other tests may have let it lapse.
        await broker.allow_direct(shard, until_ms=await broker.now_ms(shard) + HOUR_MS)
    yield broker
    await broker.aclose()


def services_over(database: Database, broker: Broker, *, fresh_s: float) -> Services:
    tokens = Tokens(database)
    return Services(
        broker=broker,
        authenticator=CachedAuthenticator(tokens, fresh_s=fresh_s),
        pusher=ResumingPusher(DirectPusher(broker), broker=broker, intake=None),
        settler=DirectSettler(broker),
        tokens=tokens,
        direct_users=DirectUsers(broker._runner.client, shards=4)
        if isinstance(broker, RedisBroker)
        else None,
        tenants=Tenants(database),
        definitions=QueueDefinitions(database),
        changes=Changes(database, broker),
        audit=AuditLog(database),
        annotations=Annotations(database),
        dead_letters=open_dead_letters(database, broker),
        channels=Channels(database),
        timelines=Timelines(database, broker),
    )


@pytest.fixture
def services(broker: Broker, database: Database) -> Services:
    return services_over(database, broker, fresh_s=0)


@pytest.fixture
def app(services: Services) -> Edge:
    return create_app(services)


@pytest.fixture
async def base_url(app: Edge, services: Services) -> AsyncIterator[str]:
    """The API on a socket of its own."""
    async with listening(app, bind("127.0.0.1", 0), stopping=services.stopping.set, grace_s=5) as url:
        yield url


@pytest.fixture
async def tenant(app: Edge, services: Services) -> AsyncIterator[Tenant]:
    async with AsyncExitStack() as stack:
        yield await make_tenant(stack, app, services)


@pytest.fixture
async def other(app: Edge, services: Services) -> AsyncIterator[Tenant]:
    async with AsyncExitStack() as stack:
        yield await make_tenant(stack, app, services)


@pytest.fixture
async def shaky(small: Database, broker: Broker) -> AsyncIterator[Tenant]:
    """A tenant of an API over the module's `small` database, which will fail; its token is known already."""
    services = services_over(small, broker, fresh_s=0.01)
    async with AsyncExitStack() as stack:
        tenant = await make_tenant(stack, create_app(services), services)
        await define(services, tenant.environment, "q")
        assert (await tenant.client.post("/api/v1/push", json=PUSH)).status_code == 201
        yield tenant


@pytest.fixture
def client(tenant: Tenant) -> httpx2.AsyncClient:
    return tenant.client


@pytest.fixture
async def queue(tenant: Tenant, services: Services) -> str:
    """A defined queue of the tenant, with an awkward name."""
    return await define(services, tenant.environment, "or/ders: ✓")
