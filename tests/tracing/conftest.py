from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ingress.house import House, open_house
from tracing.exported import Exported
from weir.control.database import Database
from weir.model.names import EnvironmentRef

TRACE_URL = "https://traces.example/trace/{trace_id}?view=whole"


@pytest.fixture
def exported() -> Exported:
    return Exported()


@pytest.fixture
async def house(
    environment: EnvironmentRef, database: Database, redis_url: str, exported: Exported
) -> AsyncIterator[House]:
    """A house whose processes write spans."""
    async with open_house(
        environment, database, redis_url, tracer=exported.tracer(), trace_url=TRACE_URL
    ) as house:
        yield house
