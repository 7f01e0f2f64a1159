"""Lending connections: asked for a sign of life unless just used, and soon back after an outage."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from support.servers import RunningServer
from weir.control.database import Connection, Database
from weir.control.sql import NamedQuery
from weir.errors import WeirError

SELECT_ONE = NamedQuery(name="one", sentence="One row.", text="SELECT 1 AS one")


@pytest.mark.parametrize(("trusted_s", "asked"), [(0.0, 3), (60.0, 1)])
async def test_a_connection_that_was_just_used_may_be_trusted(
    database: Database, monkeypatch: pytest.MonkeyPatch, trusted_s: float, asked: int
) -> None:
    checks = 0
    check = Connection.read_clock

    async def counted(connection: Connection) -> None:
        nonlocal checks
        checks += 1
        await check(connection)

    monkeypatch.setattr(Connection, "read_clock", counted)
    async with Database(database.url, max_size=1, trusted_s=trusted_s) as trusting:
        for _ in range(3):
            async with trusting.connection() as connection:
                await connection.execute("SELECT 1")
    assert checks == asked


@pytest.mark.fault
async def test_connections_are_back_within_seconds_however_long_the_outage_was(
    postgres: RunningServer,
) -> None:
    async with Database(postgres.url, max_size=2) as database:
        await database.fetch(SELECT_ONE)
        await asyncio.to_thread(postgres.kill)
        try:
            give_up = time.monotonic() + 10
            while time.monotonic() < give_up:
                with pytest.raises(WeirError):
                    await database.fetch(SELECT_ONE)
                await asyncio.sleep(0.2)
        finally:
            await asyncio.to_thread(postgres.start)
        async with asyncio.timeout(3):
            while True:
                with suppress(WeirError):
                    await database.fetch(SELECT_ONE)
                    return
