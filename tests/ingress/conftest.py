from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from ingress.house import open_house
from support.urls import with_database


@pytest.fixture(scope="session")
def database_url(postgres_url: str, migrated_template: str) -> Iterator[str]:
    """One migrated database for all tests of this room: each has a tenant of its own in it."""
    name = f"ingress_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {migrated_template} STRATEGY FILE_COPY")
    yield with_database(postgres_url, name)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def house(environment, database, redis_url):
    """A house whose webhooks have their short addresses, which tenants of earlier tests gave back."""
    async with database.connection() as connection:
        await connection.execute("DELETE FROM weir.hook_names")
    async with open_house(environment, database, redis_url) as house:
        yield house
