from __future__ import annotations

import pytest

from ingress.house import open_house


@pytest.fixture
async def house(environment, database, redis_url):
    async with open_house(environment, database, redis_url) as house:
        yield house
