"""Migrated ClickHouse databases. A copy of a migrated one takes a fifth of the time of a migration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from uuid import uuid4

from support.urls import with_database
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.migrate import drop_warehouse, migrate_warehouse

_TEMPLATE = "weir_template"
# Views last: they name the tables that they read and fill.
_DEFINITIONS = """
SELECT create_table_query AS definition
FROM system.tables
WHERE database = currentDatabase()
ORDER BY engine = 'MaterializedView', name
"""


class WarehouseTemplate:
    """Makes databases as the migrations leave them, on one server."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url

    @contextmanager
    def copied(self) -> Iterator[str]:
        """The URL of a database, which is dropped after the block."""
        name = f"t_{uuid4().hex}"
        url = with_database(self._server_url, name)
        definitions = self.definitions
        _run(self._server_url, f"CREATE DATABASE {name}")
        _run(url, *(each.replace(f"{_TEMPLATE}.", f"{name}.") for each in definitions))
        _run(url, f"INSERT INTO weir_migrations SELECT * FROM {_TEMPLATE}.weir_migrations")
        yield url
        asyncio.run(drop_warehouse(url))

    @cached_property
    def definitions(self) -> list[str]:
        url = with_database(self._server_url, _TEMPLATE)
        asyncio.run(migrate_warehouse(url))
        connection = ClickHouseConnection(url)
        try:
            return [row["definition"] for row in connection.rows(_DEFINITIONS)]
        finally:
            connection.close()


def _run(url: str, *statements: str) -> None:
    connection = ClickHouseConnection(url)
    try:
        for statement in statements:
            connection.command(statement)
    finally:
        connection.close()
