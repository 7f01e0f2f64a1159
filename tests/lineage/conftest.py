from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ingress.house import House, open_house
from weir.control.database import Database
from weir.model.names import EnvironmentRef


@pytest.fixture
async def house(environment: EnvironmentRef, database: Database, redis_url: str) -> AsyncIterator[House]:
    async with open_house(environment, database, redis_url, trace_url="https://t/{trace_id}") as house:
        yield house
