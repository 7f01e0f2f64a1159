"""Lending connections: each is asked for a sign of life first, unless it gave one a moment ago."""

from __future__ import annotations

import pytest
from psycopg_pool import AsyncConnectionPool

from weir.control.database import Database


@pytest.mark.parametrize(("trusted_s", "asked"), [(0.0, 3), (60.0, 1)])
async def test_a_connection_that_was_just_used_may_be_trusted(
    database: Database, monkeypatch: pytest.MonkeyPatch, trusted_s: float, asked: int
) -> None:
    checks = 0
    check = AsyncConnectionPool.check_connection

    async def counted(connection) -> None:  # type: ignore[no-untyped-def]
        nonlocal checks
        checks += 1
        await check(connection)

    monkeypatch.setattr(AsyncConnectionPool, "check_connection", staticmethod(counted))
    async with Database(database.url, max_size=1, trusted_s=trusted_s) as trusting:
        for _ in range(3):
            async with trusting.connection() as connection:
                await connection.execute("SELECT 1")
    assert checks == asked
