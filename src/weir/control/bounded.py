"""A connection to PostgreSQL on which every wait ends and a late write changes nothing.

There are two deadlines, because a server that hung executes what it was sent when it goes on:

- Ours. After `answer_s` without an answer the connection is closed and the caller gets an error. Nothing is
  asked of the server for that, so a hanging server cannot delay it.
- PostgreSQL's. A commit carries the moment until which its caller waits, and PostgreSQL checks it last. The
  moment is in PostgreSQL's time: a reading of its clock plus what our monotonic clock measured since. The
  clocks of two hosts are never compared.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from psycopg import AsyncConnection, Error, OperationalError, waiting
from psycopg.abc import PQGen
from psycopg.errors import _WaitTimeout
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow

from weir.control.sql import NamedQuery, Row

T = TypeVar("T")

# Long for a statement of a request, which touches few rows; short for a person who waits for the answer.
DEFAULT_ANSWER_S = 5.0
# PostgreSQL ends a transaction whose process is silent for this long: it may be frozen, and it holds locks.
DEFAULT_IDLE_S = 20.0
# A reading of PostgreSQL's clock is used this long: with a drift of 200 ppm it is then 6 ms off.
CLOCK_FRESH_S = 30.0
# psycopg's own default.
_INTERVAL_S = 0.1
_INTERRUPTED = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)
_READ_CLOCK = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms"
"""Not `weir.clock_ms()`, because the clock is also read before the schema exists."""
_SHORTEN_TIMEOUT = "SELECT set_config('statement_timeout', %s, true)"
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
    _clock: ClockReading | None = None

    @classmethod
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
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
        await self._run_and_read_clock(f"{_timeouts('SET', self.answer_s, DEFAULT_IDLE_S)}; {_READ_CLOCK}")

    async def read_clock(self) -> None:
        """Read PostgreSQL's clock. The pool also uses it as the sign of life."""
        await self._run_and_read_clock(_READ_CLOCK)

    async def begin(self, *, idle_s: float | None = None) -> None:
        """Begin a transaction, set its timeouts and read the clock, in one round trip."""
        timeouts = "" if idle_s is None else f"{_timeouts('SET LOCAL', self.answer_s, idle_s)}; "
        await self._run_and_read_clock(f"BEGIN; {timeouts}{_READ_CLOCK}")

    async def commit_in_time(self) -> None:
        """Commit, unless PostgreSQL reaches the commit after its deadline.

        The check and the commit go as one message: PostgreSQL skips the rest of a message when a part fails.
        """
        await self.execute(f"SELECT weir.require_before({self._deadline_ms()}); COMMIT", prepare=False)

    async def write(self, query: NamedQuery, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        """Execute one writing statement, in time or not at all. Returns its rows and how many it touched.

        The statement and the check of the deadline are one implicit transaction, in one round trip.
        """
        async with self.pipeline():
            if self.until_s < math.inf:
                timeout_ms = round(self._patience_s() * _TIMEOUT_MS_PER_S)
                await self.execute(_SHORTEN_TIMEOUT, (f"{timeout_ms}ms",))
            cursor = await self.execute(query.text, parameters)
            await self.execute("SELECT weir.require_before(%s)", (self._deadline_ms(),))
        rows = list(await cursor.fetchall()) if cursor.description else []
        return rows, cursor.rowcount

    def _deadline_ms(self) -> int:
        if self._clock is None:
            raise RuntimeError("the clock was not read when the connection was made")
        return self._clock.server_time_ms(time.monotonic() + self._patience_s())

    async def _run_and_read_clock(self, statements: str) -> None:
        """Execute statements; the last one is `_READ_CLOCK`."""
        cursor = await self.execute(statements, prepare=False)
        while cursor.nextset():
            pass
        row = await cursor.fetchone()
        if row is not None:
            self._clock = ClockReading(server_ms=row["now_ms"], at_s=time.monotonic())


def _timeouts(verb: str, answer_s: float, idle_s: float) -> str:
    statement_ms, idle_ms = round(answer_s * _TIMEOUT_MS_PER_S), round(idle_s * 1_000)
    return (
        f"{verb} statement_timeout = {statement_ms}; {verb} idle_in_transaction_session_timeout = {idle_ms}"
    )
