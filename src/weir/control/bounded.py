"""A connection to PostgreSQL on which every wait ends and a late write changes nothing.

There are two deadlines, because a server that hung executes what it was sent when it goes on:

- Ours. After `answer_s` without an answer the connection is closed and the caller gets an error. Nothing is
  asked of the server for that, so a hanging server cannot delay it.
- PostgreSQL's. A commit carries the moment until which its caller waits, and PostgreSQL checks it last. The
  moment is in PostgreSQL's time: a reading of its clock plus what our monotonic clock measured since. The
  clocks of two hosts are never compared.

A pooler in transaction mode, such as pgbouncer, hands each transaction to any of its own connections. Behind
one nothing may be left in a session, because somebody else has it next: no prepared statement, no setting. So
a connection says at its start how it wants its session, looks whether it got that, and if not brings its
settings with each transaction.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar
from uuid import uuid4

from psycopg import AsyncConnection, AsyncCursor, Error, OperationalError, waiting
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import _WaitTimeout
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow

from weir.control.sql import NamedQuery, Row

T = TypeVar("T")

# Long for a statement of a request, which touches few rows; short for a person who waits for the answer.
DEFAULT_ANSWER_S = 5.0
ROWS_AT_ONCE = 200
# PostgreSQL ends a transaction whose process is silent for this long: it may be frozen, and it holds locks.
DEFAULT_IDLE_S = 20.0
# A reading of PostgreSQL's clock is used this long: with a drift of 200 ppm it is then 6 ms off.
CLOCK_FRESH_S = 30.0
# psycopg's own default.
_INTERVAL_S = 0.1
_INTERRUPTED = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)
_NOW_MS = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms"
_READ_CLOCK = f"SELECT {_NOW_MS}"
"""Not `weir.clock_ms()`, because the clock is also read before the schema exists."""
_SHORTEN_TIMEOUT = "SELECT set_config('statement_timeout', %s, true)"
# Weir's statements are written for this level, whatever the default of the server, database or role is.
_ISOLATION = "read committed"
_BEGIN = f"BEGIN ISOLATION LEVEL {_ISOLATION}"
_MARK = "weir.session"
"""A setting that only our own session has."""
_READ_MARK = f"SELECT current_setting('{_MARK}', true) AS mark, {_NOW_MS}"
_NO_OPTIONS = "unsupported startup parameter"
"""How pgbouncer refuses the settings of a session, unless it is told to ignore them."""
# PostgreSQL's timeout in ms per second of ours: 5 % shorter, so that its own error arrives in time and the
# connection can be kept.
_TIMEOUT_MS_PER_S = 950


class AnswerTimeout(OperationalError):
    """PostgreSQL did not answer in time; the connection is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """A reading of PostgreSQL's clock, and when the answer arrived here."""

    server_ms: int
    at_s: float

    def server_time_ms(self, moment_s: float) -> int:
        """PostgreSQL's time at a moment of our monotonic clock, early by the travel time of the answer."""
        return self.server_ms + int((moment_s - self.at_s) * 1_000)


class DatabaseActivity(Protocol):
    """Counts how a process uses PostgreSQL; `telemetry.process_counts` implements it."""

    def count_transaction(self) -> None: ...

    def count_error(self) -> None: ...


class BoundedConnection(AsyncConnection[DictRow]):
    """A connection with deadlines. The pool of a `Database` makes it."""

    activity: DatabaseActivity | None = None
    answer_s: float = DEFAULT_ANSWER_S
    """How long an answer may take."""
    until_s: float = math.inf
    """When the whole use of the connection ends, by our monotonic clock."""
    pooled: bool = False
    """Whether a pooler may hand each transaction to another session."""
    _clock: ClockReading | None = None

    @classmethod
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        """Connect and set up the session for answers within `answer_s`, or find that it is not ours alone."""
        answer_s, mark = options.pop("answer_s", DEFAULT_ANSWER_S), uuid4().hex
        try:
            connection = await cls._connect(conninfo, **_with_session(conninfo, options, answer_s, mark))
        except OperationalError as error:
            if _NO_OPTIONS not in str(error):
                raise
            connection = await cls._connect(conninfo, **options)
        connection.answer_s = answer_s
        row = await connection._run_and_read_clock(_READ_MARK)
        connection.pooled = row["mark"] != mark
        if connection.pooled:
            connection.prepare_threshold = None
        return connection

    @classmethod
    async def _connect(cls, conninfo: str, **options: Any) -> Self:
        """Connect. A connection that came only half way is closed before the error is raised.

        Otherwise PostgreSQL would keep a place for it until its authentication times out.
        """
        try:
            return await super().connect(conninfo, **options)
        except Error as error:
            # The error holds the frames of the attempt, and these hold the error and the connection: only the
            # garbage collector would close it.
            error.__context__ = None
            raise error.with_traceback(None) from None

    @property
    def knows_clock(self) -> bool:
        """Whether the reading of the clock is fresh enough for the deadline of a commit."""
        return self._clock is not None and time.monotonic() - self._clock.at_s < CLOCK_FRESH_S

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the block as a transaction, unless it is part of one or its connection broke."""
        alone = self.pgconn.transaction_status == TransactionStatus.IDLE
        try:
            yield
        finally:
            if alone and self.activity is not None and not self.closed:
                self.activity.count_transaction()

    async def wait(self, gen: PQGen[T], interval: float = _INTERVAL_S, timeout: float | None = None) -> T:
        """Wait for the server. psycopg sends every exchange through here; it handles its own `timeout`."""
        patience_s = self._patience_s() if timeout is None else timeout
        try:
            return await waiting.wait_async(gen, self.pgconn.socket, interval=interval, timeout=patience_s)
        except _WaitTimeout:
            if timeout is not None:
                raise
            self._give_up(gen)
            raise AnswerTimeout(f"no answer within {patience_s:.1f} s") from None
        except _INTERRUPTED:
            # psycopg would ask the server to cancel, and wait 10 s for a server that hangs.
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self._give_up(gen)
            raise

    def _give_up(self, gen: PQGen[Any]) -> None:
        """Close the connection in the middle of an exchange, and the exchange with it.

        psycopg's generators talk to the server once more when they are closed. Without a connection that is
        an error, and the garbage collector would report it as unraisable.
        """
        self.pgconn.finish()
        with suppress(Exception):
            gen.close()

    def _patience_s(self) -> float:
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            self.pgconn.finish()
            raise AnswerTimeout("the deadline passed before the statement was sent")
        return min(self.answer_s, left_s)

    async def prepare_session(self) -> None:
        """Set PostgreSQL's own timeouts, and read its clock."""
        # Behind a pooler each transaction brings its timeouts.
        timeouts = "" if self.pooled else f"{_timeouts('SET', self.answer_s, DEFAULT_IDLE_S)}; "
        await self._run_and_read_clock(f"{timeouts}{_READ_CLOCK}")

    async def read_clock(self) -> None:
        """Read PostgreSQL's clock. The pool also uses it as the sign of life."""
        await self._run_and_read_clock(_READ_CLOCK)

    async def begin(self, *, idle_s: float | None = None) -> None:
        """Begin a transaction, set its timeouts and read the clock, in one round trip."""
        if idle_s is None and self.pooled:
            idle_s = DEFAULT_IDLE_S
        timeouts = "" if idle_s is None else f"{_timeouts('SET LOCAL', self.answer_s, idle_s)}; "
        await self._run_and_read_clock(f"{_BEGIN}; {timeouts}{_READ_CLOCK}")

    async def commit_in_time(self) -> None:
        """Commit, unless PostgreSQL reaches the commit after its deadline.

        The check and the commit go as one message: PostgreSQL skips the rest of a message when a part fails.
        """
        await self.execute(f"SELECT weir.require_before({self._deadline_ms()}); COMMIT", prepare=False)

    async def run_alone(self, query: NamedQuery, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        """Execute one statement, and a writing one in time or not at all. Returns its rows, and their number.

        The statement, its settings and the check of the deadline are one transaction, in one round trip.
        """
        try:
            async with self.pipeline():
                if self.pooled:
                    await self.execute(_BEGIN)
                if self.pooled or self.until_s < math.inf:
                    timeout_ms = round(self._patience_s() * _TIMEOUT_MS_PER_S)
                    await self.execute(_SHORTEN_TIMEOUT, (f"{timeout_ms}ms",))
                cursor = await self.execute(query.text, parameters)
                if query.writes:
                    await self.execute("SELECT weir.require_before(%s)", (self._deadline_ms(),))
                if self.pooled:
                    await self.execute("COMMIT")
        except Error:
            await self._recover()
            raise
        return (await all_rows(cursor) if cursor.description else []), cursor.rowcount

    async def _recover(self) -> None:
        """Make the connection sound after a failure in a pipeline, or close it.

        PostgreSQL skips what follows a failed statement, also the preparation of a statement, and psycopg
        notes it as prepared all the same. A rollback lets psycopg forget all of them.
        """
        if self.closed:
            return
        try:
            with self.counted():
                if self.pgconn.transaction_status == TransactionStatus.IDLE:
                    await self.execute("BEGIN", prepare=False)
                await self.rollback()
        except Error:
            await self.close()

    def _deadline_ms(self) -> int:
        if self._clock is None:
            raise RuntimeError("the clock was not read when the connection was made")
        return self._clock.server_time_ms(time.monotonic() + self._patience_s())

    async def _run_and_read_clock(self, statements: str) -> Row:
        """Execute statements, and return the row of the last one, which reads the clock."""
        cursor = await self.execute(statements, prepare=False)
        while cursor.nextset():
            pass
        row = await cursor.fetchone()
        if row is None:
            raise OperationalError("PostgreSQL did not tell the time")
        self._clock = ClockReading(server_ms=row["now_ms"], at_s=time.monotonic())
        return row


async def all_rows(cursor: AsyncCursor[DictRow]) -> list[Row]:
    """All rows of a result, made in parts: 5,000 with JSON in them would hold the event loop for 30 ms."""
    rows: list[Row] = []
    while part := await cursor.fetchmany(ROWS_AT_ONCE):
        rows += part
        if len(part) < ROWS_AT_ONCE:
            break
        await asyncio.sleep(0)
    return rows


def _with_session(conninfo: str, options: dict[str, Any], answer_s: float, mark: str) -> dict[str, Any]:
    """The options of a connection whose session begins with our settings, after those of the URL."""
    wanted = {
        "statement_timeout": round(answer_s * _TIMEOUT_MS_PER_S),
        "idle_in_transaction_session_timeout": round(DEFAULT_IDLE_S * 1_000),
        "default_transaction_isolation": _ISOLATION.replace(" ", "\\ "),
        _MARK: mark,
    }
    given = options.get("options") or conninfo_to_dict(conninfo).get("options") or ""
    ours = " ".join(f"-c {name}={value}" for name, value in wanted.items())
    return {**options, "options": f"{given} {ours}".strip()}


def _timeouts(verb: str, answer_s: float, idle_s: float) -> str:
    statement_ms, idle_ms = round(answer_s * _TIMEOUT_MS_PER_S), round(idle_s * 1_000)
    return (
        f"{verb} statement_timeout = {statement_ms}; {verb} idle_in_transaction_session_timeout = {idle_ms}"
    )
