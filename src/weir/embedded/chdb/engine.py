"""The engine: one open directory, with a new connection per request and kept ones for sessions."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import chdb

from weir.embedded.chdb.repair import repair_deduplication_logs
from weir.embedded.chdb.request import ExternalTable
from weir.embedded.chdb.spool import Spool
from weir.embedded.chdb.statement import identifier, quoted

_DEFAULT_DATABASES = ("", "default", "__default__")


class Engine:
    """Owns the directory. chDB runs one statement per connection at a time; separate ones run in parallel."""

    def __init__(self, path: Path, *, max_concurrent: int) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        # Before the first connection: the engine reads the logs when it opens the directory.
        self.repaired = repair_deduplication_logs(path)
        self.running = threading.BoundedSemaphore(max_concurrent)
        self._max_concurrent = max_concurrent
        # The engine closes with its last connection, so this one stays open.
        self._first = chdb.connect(str(path))
        self.version = self._text("SELECT version()")
        self.timezone = self._text("SELECT timezone()")

    def connect(self) -> Any:
        return chdb.connect(str(self.path))

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection for one request, without any state of other requests."""
        connection = self.connect()
        try:
            yield connection
        finally:
            connection.close()

    def kill(self, mark: str) -> None:
        """Stop the statement that carries `mark`."""
        with suppress(Exception), self.connection() as connection:
            connection.query(f"KILL QUERY WHERE startsWith(query, {quoted(f'/* {mark} */')}) ASYNC")

    def close(self) -> None:
        """Let running statements end, then close the directory."""
        for _ in range(self._max_concurrent):
            self.running.acquire(timeout=10)
        with suppress(Exception):
            self._first.close()

    def _text(self, query: str) -> str:
        return str(self._first.query(query, "TSVRaw").bytes().decode().strip())


def use(connection: Any, database: str | None) -> None:
    if database and database not in _DEFAULT_DATABASES:
        connection.query(f"USE {identifier(database)}")


def configure(connection: Any, settings: Mapping[str, str]) -> None:
    if settings:
        connection.query("SET " + ", ".join(f"{name} = {quoted(value)}" for name, value in settings.items()))


def load(connection: Any, table: ExternalTable) -> None:
    """Make an external table visible to this connection."""
    connection.query(f"CREATE TEMPORARY TABLE {identifier(table.name)} ({table.structure})")
    with Spool() as spool:
        spool.write(table.data)
        target = identifier(table.name)
        connection.query(f"INSERT INTO {target} FROM INFILE {quoted(spool.path)} FORMAT {table.format}")
