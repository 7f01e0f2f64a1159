"""PostgreSQL for the other packages: a pool, transactions, named queries, and errors of the tree."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from weir.control.bounded import (
    DEFAULT_ANSWER_S,
    DEFAULT_IDLE_S,
    AnswerTimeout,
    BoundedConnection,
    DatabaseActivity,
    all_rows,
)
from weir.control.errors import failed, translating
from weir.control.sql import NamedQuery
from weir.control.sql import Row as Row
from weir.model.fail_fast import FailFast

Connection = BoundedConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """How busy a pool is. `busy` counts connections in use, not open ones."""

    busy: int
    max_size: int
    waiting: int


# A healthy connection answers in less than 10 ms; after this long another connection is tried.
_SIGN_OF_LIFE_S = 0.25
# psycopg_pool doubles its pause between attempts: after an outage of 30 s it would stay away for 30 s more.
# After this long it stops, and the next request makes it try at once.
_RECONNECT_S = 4.0
# A timer that is later than this was held up by our own event loop.
_OWN_DELAY_S = 0.1
# How long one attempt to connect may take. libpq allows no shorter time.
CONNECT_S = 2

_Joint = tuple[asyncio.Task[Any] | None, Connection | None]


class Database:
    """A pool of connections. Nothing waits longer than `timeout_s` for one, or than `answer_s` for an answer.

    After a pool timeout the other waiters fail fast for 1 s: they wait a quarter as long, so that a request
    that needs several connections learns soon that there are none.

    A connection must give a sign of life before it is used, unless it was returned within `trusted_s`.
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
        activity: DatabaseActivity | None = None,
    ) -> None:
        self.url = url
        self._activity = activity
        self._fail_fast = FailFast(timeout_s)
        self._answer_s = answer_s
        self._trusted_s = trusted_s
        self._returned: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()
        self._together: ContextVar[_Joint] = ContextVar(f"weir.{name}", default=(None, None))
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            connection_class=Connection,
            kwargs={
                "row_factory": dict_row,
                "autocommit": True,
                "application_name": name,
                "connect_timeout": CONNECT_S,
                "answer_s": answer_s,
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
        """Start the pool; with `wait_s`, fail unless a connection is open within that time."""
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
        """A connection in autocommit mode. `within_s` limits the block and the wait for the connection."""
        if (joined := self._joined()) is not None:
            yield joined
            return
        with self._heard():
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
        """A connection inside one transaction: all or nothing, and nothing if its commit is late.

        `idle_s` is how long the block may do other things between two statements.
        """
        if (joined := self._joined()) is not None:
            yield joined
            return
        if answer_s is not None:
            idle_s = idle_s or DEFAULT_IDLE_S
        with self._heard():
            async with self._lent(answer_s) as connection:
                with connection.counted():
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
        """Make every statement that this asyncio task sends inside the block one transaction."""
        async with self.transaction(answer_s=answer_s, idle_s=idle_s) as connection:
            token = self._together.set((asyncio.current_task(), connection))
            try:
                yield
            finally:
                self._together.reset(token)

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Translate exceptions of psycopg, and count each one that means that PostgreSQL failed."""
        with translating():
            try:
                yield
            except psycopg.Error as error:
                if self._activity is not None and failed(error):
                    self._activity.count_error()
                raise

    def _joined(self) -> Connection | None:
        """The connection of `together`. An asyncio task that was started inside the block has its own."""
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
            self._fail_fast.note_timeout()
            raise
        finally:
            connection.answer_s, connection.until_s = self._answer_s, math.inf
            self._returned[connection] = time.monotonic()
            await self._pool.putconn(connection)

    async def _borrow(self, until_s: float) -> Connection:
        started_s = time.monotonic()
        patience_s = self._fail_fast.wait_s()
        try:
            return await self._borrow_until(min(until_s, started_s + patience_s), until_s)
        except PoolTimeout:
            waited_s = time.monotonic() - started_s
            if waited_s > patience_s + _OWN_DELAY_S and time.monotonic() < until_s:
                # Our own event loop was blocked. That says nothing about PostgreSQL, so wait as long again.
                with suppress(PoolTimeout):
                    return await self._borrow_until(min(until_s, time.monotonic() + patience_s), until_s)
            self._fail_fast.note_timeout()
            raise PoolTimeout(f"no connection within {time.monotonic() - started_s:.2f} s") from None

    async def _borrow_until(self, give_up_s: float, until_s: float) -> Connection:
        """A connection that gave a sign of life."""
        while True:
            connection = await self._pool.getconn(timeout=give_up_s - time.monotonic())
            if await self._lives(connection, until_s):
                return connection
            await self._pool.putconn(connection)

    async def _lives(self, connection: Connection, until_s: float) -> bool:
        """Ask for a sign of life. A connection without one is closed."""
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
        """Set PostgreSQL's timeouts for this use of the connection, and set them back at the end."""
        await connection.prepare_session()
        try:
            yield
        finally:
            connection.answer_s = self._answer_s
            if not connection.closed:
                await connection.prepare_session()

    async def _prepare(self, connection: Connection) -> None:
        connection.activity = self._activity

    async def fetch(self, query: NamedQuery, **parameters: Any) -> list[Row]:
        """Run one query on a connection of its own; returns all rows."""
        async with self.connection() as connection:
            return await fetch(connection, query, **parameters)

    async def fetch_one(self, query: NamedQuery, **parameters: Any) -> Row | None:
        rows = await self.fetch(query, **parameters)
        return rows[0] if rows else None

    async def execute(self, query: NamedQuery, **parameters: Any) -> int:
        """Run one statement on a connection of its own; returns how many rows it touched."""
        async with self.connection() as connection:
            return await execute(connection, query, **parameters)

    def state(self) -> PoolState:
        stats = self._pool.get_stats()
        return PoolState(
            busy=stats.get("pool_size", 0) - stats.get("pool_available", 0),
            max_size=self._pool.max_size,
            waiting=stats.get("requests_waiting", 0),
        )


async def fetch(connection: Connection, query: NamedQuery, **parameters: Any) -> list[Row]:
    """Run one query on a given connection; returns all rows."""
    with connection.counted():
        if _stands_alone(connection, query):
            rows, _ = await connection.run_alone(query, parameters)
            return rows
        cursor = await connection.execute(query.text, parameters)
        return await all_rows(cursor)


async def fetch_one(connection: Connection, query: NamedQuery, **parameters: Any) -> Row | None:
    rows = await fetch(connection, query, **parameters)
    return rows[0] if rows else None


async def execute(connection: Connection, query: NamedQuery, **parameters: Any) -> int:
    """Run one statement on a given connection; returns how many rows it touched."""
    with connection.counted():
        if _stands_alone(connection, query):
            _, touched = await connection.run_alone(query, parameters)
            return touched
        cursor = await connection.execute(query.text, parameters)
        return cursor.rowcount


async def execute_many(
    connection: Connection, query: NamedQuery, parameters: Sequence[Mapping[str, Any]]
) -> None:
    """Run one statement per set of parameters, pipelined, inside the caller's transaction."""
    async with connection.cursor() as cursor:
        await cursor.executemany(query.text, parameters)


def _stands_alone(connection: Connection, query: NamedQuery) -> bool:
    """Whether the statement stands outside a transaction, and brings a deadline or settings of its own."""
    outside = connection.pgconn.transaction_status == TransactionStatus.IDLE
    return outside and (query.writes or connection.pooled)


async def _roll_back(connection: Connection) -> None:
    """Roll back; a connection that cannot is closed, and PostgreSQL then rolls back by itself."""
    try:
        await connection.rollback()
    except psycopg.Error:
        await connection.close()
