"""A database of a user with an outbox in it, and an API with a client, both in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import httpx2
import psycopg
import pytest

from outbox.world import Tokens, World
from support.urls import with_database
from weir.api.app import create_app
from weir.api.services import Services
from weir.client.core import AsyncWeir
from weir.exchange.attempt import DirectPusher
from weir.exchange.settle import DirectSettler
from weir.model.names import EnvironmentRef
from weir.outbox import migrate
from weir.spec.ir import Ordering, QueueSpec
from weir.testing.memory import MemoryBroker


@pytest.fixture
def shop_url(postgres_url: str) -> Iterator[str]:
    """A user's database with an outbox and a table of the user's own."""
    name = f"shop_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = with_database(postgres_url, name)
    asyncio.run(migrate(url))
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, customer text)")
    yield url
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def world(shop_url: str, environment: EnvironmentRef) -> AsyncIterator[World]:
    broker = MemoryBroker(shards=2)
    queue = environment.queue("receipts")
    await broker.define(queue, QueueSpec(name=queue.queue, ordering=Ordering.PER_KEY))
    services = Services(
        broker=broker,
        authenticator=Tokens(environment),
        pusher=DirectPusher(broker),
        settler=DirectSettler(broker),
    )
    transport = httpx2.ASGITransport(app=create_app(services))
    async with httpx2.AsyncClient(transport=transport) as http:
        weir = AsyncWeir("http://weir", token="t", retry_attempts=1, http=http)
        yield World(url=shop_url, broker=broker, queue=queue, weir=weir, http=http)
