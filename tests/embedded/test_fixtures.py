"""The fixtures that every room's tests stand on."""

from __future__ import annotations

import clickhouse_connect

from weir.control.database import Database
from weir.control.sql import NamedQuery


async def test_each_test_gets_a_migrated_database(database: Database) -> None:
    query = NamedQuery(name="count", sentence="Count.", text="SELECT count(*) AS n FROM weir.migrations")
    rows = await database.fetch(query)
    assert rows[0]["n"] > 0


def test_each_test_gets_a_migrated_warehouse(warehouse_url: str) -> None:
    with clickhouse_connect.get_client(dsn=warehouse_url) as client:
        assert "weir_migrations" in client.command("SHOW TABLES")
