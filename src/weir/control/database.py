"""PostgreSQL as the rooms see it: a pool, transactions, named queries, and errors of the tree."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from weir.control.errors import translating
from weir.control.sql import Query

Connection = AsyncConnection[DictRow]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """How busy a pool is; `busy` counts connections in use, not those merely opened."""

    busy: int
    size: int
    max_size: int
    waiting: int


_MEMORY_S = 1.0
"""How long a wait in vain is remembered."""
_RECONNECT_S = 4.0
"""How long the pool tries on its own; after that whoever wants a connection makes it try anew, at once. It
waits twice as long each time: left to itself, half a minute more after an outage of one."""


class Database:
    """A pool of connections. Nothing waits longer than `timeout_s` for one.

    Who waited in vain was not alone: for a second after that others wait a quarter as long, so that a request
    which needs several connections learns soon that there are none.

    A connection is asked for a sign of life before it is lent, unless it was returned within `trusted_s`.
    """

    def __init__(
        self,
        url: str,
        *,
        min_size: int = 1,
        max_size: int = 10,
        timeout_s: float = 2.0,
        max_waiting: int = 0,
        trusted_s: float = 0.0,
        name: str = "weir",
    ) -> None:
        self.url = url
        self._timeout_s = timeout_s
        self._trusted_s = trusted_s
        self._returned: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()
        self._in_vain_until = 0.0
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            connection_class=AsyncConnection[DictRow],
            kwargs={"row_factory": dict_row, "autocommit": True, "application_name": name},
            min_size=min_size,
            max_size=max_size,
            timeout=timeout_s,
            reconnect_timeout=_RECONNECT_S,
            max_waiting=max_waiting,
            check=self._check,
            name=name,
            open=False,
        )

    async def open(self, *, wait_s: float | None = None) -> None:
        """Start the pool; with `wait_s`, fail unless a connection can be had within that time."""
        with translating():
            await self._pool.open()
            if wait_s is not None:
                await self._pool.wait(timeout=wait_s)

    async def aclose(self) -> None:
        await self._pool.close()

    async def __aenter__(self) -> Database:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode."""
        with translating():
            async with self._lent() as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside one transaction: all or nothing."""
        with translating():
            async with self._lent() as connection, connection.transaction():
                yield connection

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[Connection]:
        connection = await self._borrow()
        try:
            async with connection:
                yield connection
        finally:
            self._returned[connection] = time.monotonic()
            await self._pool.putconn(connection)

    async def _check(self, connection: Connection) -> None:
        if time.monotonic() - self._returned.get(connection, -math.inf) >= self._trusted_s:
            await self._pool.check_connection(connection)

    async def _borrow(self) -> Connection:
        short = time.monotonic() < self._in_vain_until
        patience_s = self._timeout_s / 4 if short else self._timeout_s
        try:
            # The pool pauses between connections that turn out to be broken, and counts its patience anew.
            async with asyncio.timeout(patience_s):
                return await self._pool.getconn(timeout=patience_s)
        except (PoolTimeout, TimeoutError):
            self._in_vain_until = time.monotonic() + _MEMORY_S
            raise PoolTimeout(f"no connection within {patience_s:.2f} s") from None

    async def fetch(self, query: Query, **parameters: Any) -> list[Row]:
        """All rows of one query, on a connection of its own."""
        async with self.connection() as connection:
            return await fetch(connection, query, **parameters)

    async def fetch_one(self, query: Query, **parameters: Any) -> Row | None:
        rows = await self.fetch(query, **parameters)
        return rows[0] if rows else None

    async def execute(self, query: Query, **parameters: Any) -> int:
        """Run one statement; how many rows it touched."""
        async with self.connection() as connection:
            return await execute(connection, query, **parameters)

    def state(self) -> PoolState:
        stats = self._pool.get_stats()
        size = stats.get("pool_size", 0)
        return PoolState(
            busy=size - stats.get("pool_available", 0),
            size=size,
            max_size=self._pool.max_size,
            waiting=stats.get("requests_waiting", 0),
        )


async def fetch(connection: Connection, query: Query, **parameters: Any) -> list[Row]:
    """All rows of one query, on a given connection."""
    cursor = await connection.execute(query.text, parameters)
    return list(await cursor.fetchall())


async def fetch_one(connection: Connection, query: Query, **parameters: Any) -> Row | None:
    rows = await fetch(connection, query, **parameters)
    return rows[0] if rows else None


async def execute(connection: Connection, query: Query, **parameters: Any) -> int:
    """Run one statement on a given connection; how many rows it touched."""
    cursor = await connection.execute(query.text, parameters)
    return cursor.rowcount


async def execute_many(connection: Connection, query: Query, parameters: Sequence[Mapping[str, Any]]) -> None:
    """Run one statement for each set of parameters, pipelined."""
    async with connection.cursor() as cursor:
        await cursor.executemany(query.text, parameters)
