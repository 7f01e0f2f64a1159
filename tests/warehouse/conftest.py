"""Fixtures of the room: a rig on a shared warehouse, and one on a warehouse of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from support.warehouse import WarehouseRig
from support.warehouse_template import WarehouseTemplate


@pytest.fixture(scope="module")
def shared_url(warehouses: WarehouseTemplate) -> Iterator[str]:
    """A warehouse that tests share: each has a tenant of its own."""
    with warehouses.copied() as url:
        yield url


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
