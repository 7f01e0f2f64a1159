"""PostgreSQL as the rooms see it: a pool, transactions, named queries, and errors of the tree."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from weir.control.bounded import DEFAULT_ANSWER_S, DEFAULT_IDLE_S, AnswerTimeout, BoundedConnection
from weir.control.errors import translating
from weir.control.sql import NamedQuery
from weir.control.sql import Row as Row

Connection = BoundedConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """How busy a pool is; `busy` counts connections in use, not those merely opened."""

    busy: int
    size: int
    max_size: int
    waiting: int


_MEMORY_S = 1.0
"""How long a wait in vain is remembered."""
_SIGN_OF_LIFE_S = 0.25
"""How long one connection may take to answer before another is tried: a healthy one takes below 10 ms."""
_RECONNECT_S = 4.0
"""How long the pool tries on its own; after that whoever wants a connection makes it try anew, at once. It
waits twice as long each time: left to itself, half a minute more after an outage of one."""
_CONNECT_S = 2
"""For one attempt to connect; the driver takes no less."""


_Joint = tuple[asyncio.Task[Any] | None, Connection | None]


class Database:
    """A pool of connections. Nothing waits longer than `timeout_s` for one, or than `answer_s` for an answer.

    After a wait in vain the others fail fast for a second: they wait a quarter as long, so that a request
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
        answer_s: float = DEFAULT_ANSWER_S,
        max_waiting: int = 0,
        trusted_s: float = 0.0,
        name: str = "weir",
    ) -> None:
        self.url = url
        self._timeout_s = timeout_s
        self._answer_s = answer_s
        self._trusted_s = trusted_s
        self._returned: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()
        self._in_vain_until = 0.0
        self._together: ContextVar[_Joint] = ContextVar(f"weir.{name}", default=(None, None))
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            connection_class=Connection,
            kwargs={
                "row_factory": dict_row,
                "autocommit": True,
                "application_name": name,
                "connect_timeout": _CONNECT_S,
            },
            min_size=min_size,
            max_size=max_size,
            timeout=timeout_s,
            reconnect_timeout=_RECONNECT_S,
            max_waiting=max_waiting,
            configure=self._prepare,
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
    async def connection(
        self, *, answer_s: float | None = None, within_s: float | None = None
    ) -> AsyncIterator[Connection]:
        """A connection in autocommit mode. `within_s` bounds the whole loan, the wait for it included."""
        if (joined := self._joined()) is not None:
            yield joined
            return
        with translating():
            async with self._lent(answer_s, within_s) as connection:
                if answer_s is None:
                    yield connection
                else:
                    async with self._other_patience(connection):
                        yield connection

    @asynccontextmanager
    async def transaction(
        self, *, answer_s: float | None = None, idle_s: float | None = None
    ) -> AsyncIterator[Connection]:
        """A connection inside one transaction: all or nothing, and nothing if its commit comes too late.

        `idle_s` is how long the block may do other things between two statements.
        """
        if (joined := self._joined()) is not None:
            yield joined
            return
        if answer_s is not None:
            idle_s = idle_s or DEFAULT_IDLE_S
        with translating():
            async with self._lent(answer_s) as connection:
                await connection.begin(idle_s=idle_s)
                try:
                    yield connection
                except BaseException:
                    await _roll_back(connection)
                    raise
                await connection.commit_in_time()

    @asynccontextmanager
    async def together(
        self, *, answer_s: float | None = None, idle_s: float | None = None
    ) -> AsyncIterator[None]:
        """Make everything that this task does here, inside the block, one transaction: all or nothing."""
        async with self.transaction(answer_s=answer_s, idle_s=idle_s) as connection:
            token = self._together.set((asyncio.current_task(), connection))
            try:
                yield
            finally:
                self._together.reset(token)

    def _joined(self) -> Connection | None:
        """The connection of `together`; a task that was started inside the block has its own."""
        task, connection = self._together.get()
        return connection if task is asyncio.current_task() else None

    @asynccontextmanager
    async def _lent(
        self, answer_s: float | None = None, within_s: float | None = None
    ) -> AsyncIterator[Connection]:
        until_s = math.inf if within_s is None else time.monotonic() + within_s
        connection = await self._borrow(until_s)
        connection.answer_s, connection.until_s = answer_s or self._answer_s, until_s
        try:
            async with connection:
                yield connection
        except AnswerTimeout:
            self._fail_fast()
            raise
        finally:
            connection.answer_s, connection.until_s = self._answer_s, math.inf
            self._returned[connection] = time.monotonic()
            await self._pool.putconn(connection)

    async def _borrow(self, until_s: float) -> Connection:
        started_s = time.monotonic()
        patience_s = self._timeout_s / 4 if started_s < self._in_vain_until else self._timeout_s
        give_up_s = min(until_s, started_s + patience_s)
        try:
            while True:
                connection = await self._pool.getconn(timeout=give_up_s - time.monotonic())
                if await self._lives(connection, until_s):
                    return connection
                await self._pool.putconn(connection)
        except PoolTimeout:
            self._fail_fast()
            raise PoolTimeout(f"no connection within {time.monotonic() - started_s:.2f} s") from None

    async def _lives(self, connection: Connection, until_s: float) -> bool:
        """Whether the connection can be used; it is closed if not."""
        now_s = time.monotonic()
        if connection.knows_clock and now_s - self._returned.get(connection, -math.inf) < self._trusted_s:
            return True
        connection.until_s = min(until_s, now_s + _SIGN_OF_LIFE_S)
        try:
            await connection.read_clock()
        except psycopg.Error:
            await connection.close()
            return False
        except BaseException:
            await self._pool.putconn(connection)
            raise
        return True

    @asynccontextmanager
    async def _other_patience(self, connection: Connection) -> AsyncIterator[None]:
        """Let PostgreSQL, too, be as patient as the loan, and then as all are again."""
        await connection.prepare_session()
        try:
            yield
        finally:
            connection.answer_s = self._answer_s
            if not connection.closed:
                await connection.prepare_session()

    async def _prepare(self, connection: Connection) -> None:
        connection.answer_s = self._answer_s
        await connection.prepare_session()

    def _fail_fast(self) -> None:
        self._in_vain_until = time.monotonic() + _MEMORY_S

    async def fetch(self, query: NamedQuery, **parameters: Any) -> list[Row]:
        """All rows of one query, on a connection of its own."""
        async with self.connection() as connection:
            return await fetch(connection, query, **parameters)

    async def fetch_one(self, query: NamedQuery, **parameters: Any) -> Row | None:
        rows = await self.fetch(query, **parameters)
        return rows[0] if rows else None

    async def execute(self, query: NamedQuery, **parameters: Any) -> int:
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


async def fetch(connection: Connection, query: NamedQuery, **parameters: Any) -> list[Row]:
    """All rows of one query, on a given connection."""
    if _stands_alone(connection, query):
        rows, _ = await connection.write(query, parameters)
        return rows
    cursor = await connection.execute(query.text, parameters)
    return list(await cursor.fetchall())


async def fetch_one(connection: Connection, query: NamedQuery, **parameters: Any) -> Row | None:
    rows = await fetch(connection, query, **parameters)
    return rows[0] if rows else None


async def execute(connection: Connection, query: NamedQuery, **parameters: Any) -> int:
    """Run one statement on a given connection; how many rows it touched."""
    if _stands_alone(connection, query):
        _, touched = await connection.write(query, parameters)
        return touched
    cursor = await connection.execute(query.text, parameters)
    return cursor.rowcount


async def execute_many(
    connection: Connection, query: NamedQuery, parameters: Sequence[Mapping[str, Any]]
) -> None:
    """Run one statement for each set of parameters, pipelined; inside a transaction."""
    async with connection.cursor() as cursor:
        await cursor.executemany(query.text, parameters)


def _stands_alone(connection: Connection, query: NamedQuery) -> bool:
    """Whether the statement is a write by itself, without a transaction whose commit is bounded."""
    return query.writes and connection.pgconn.transaction_status == TransactionStatus.IDLE


async def _roll_back(connection: Connection) -> None:
    """Undo; a connection that cannot is closed, which undoes it as well."""
    try:
        await connection.rollback()
    except psycopg.Error:
        await connection.close()
