"""Tenants in PostgreSQL."""

from __future__ import annotations

import asyncio

from weir.control.database import Database, execute
from weir.control.scopes import scope_names
from weir.control.tenants import SQL, ensure_environment
from weir.model.names import EnvironmentRef


async def test_an_environment_that_exists_is_found_while_somebody_changes_it(
    database: Database, environment: EnvironmentRef
) -> None:
    """A change may wait seconds for Redis before it is committed; what it does not concern goes on."""
    async with database.transaction() as connection:
        await ensure_environment(connection, environment, now_ms=1)
    async with database.transaction() as changing:
        await execute(
            changing, SQL["limit_environment"], concurrency=5, by_spec=False, **scope_names(environment)
        )
        async with asyncio.timeout(1), database.transaction() as other:
            await ensure_environment(other, environment, now_ms=2)
