"""Fixtures of the dead-letter room: one database for all tests that keep to their own environment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import psycopg
import pytest
from tests.deadletters.world import World

from support.urls import with_database
from weir.control.database import Database
from weir.model.names import EnvironmentRef


@pytest.fixture(scope="session")
def shared_url(postgres_url: str, migrated_template: str) -> str:
    name = f"dlq_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {migrated_template} STRATEGY FILE_COPY")
    return with_database(postgres_url, name)


@pytest.fixture
async def world(shared_url: str, environment: EnvironmentRef) -> AsyncIterator[World]:
    async with Database(shared_url, max_size=4) as database:
        yield World(database, environment)


@pytest.fixture
def lone_world(database: Database, environment: EnvironmentRef) -> World:
    """A world whose database nobody else uses, for what looks at every tenant."""
    return World(database, environment)
