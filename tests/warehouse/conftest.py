"""Fixtures of the room: a rig on a shared warehouse, and one on a warehouse of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from support.urls import with_database
from support.warehouse import WarehouseRig
from weir.warehouse.migrate import drop_warehouse, migrate_warehouse


@pytest.fixture(scope="module")
def shared_url(clickhouse_url: str) -> Iterator[str]:
    """A warehouse that tests share: each has a tenant of its own."""
    url = with_database(clickhouse_url, f"t_{uuid4().hex}")
    asyncio.run(migrate_warehouse(url))
    yield url
    asyncio.run(drop_warehouse(url))


@pytest.fixture
async def rig(shared_url: str) -> AsyncIterator[WarehouseRig]:
    rig = WarehouseRig(shared_url)
    yield rig
    await rig.aclose()


@pytest.fixture
async def lone(warehouse_url: str) -> AsyncIterator[WarehouseRig]:
    """For what belongs to no tenant: gaps and processes."""
    rig = WarehouseRig(warehouse_url)
    yield rig
    await rig.aclose()
