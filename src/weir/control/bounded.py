"""A connection to PostgreSQL on which nothing waits for ever and on which late writes change nothing.

Two deadlines, because a server that hangs still reads, once it goes on, what was sent to it meanwhile:

- Ours. Whoever waits longer than `answer_s` for an answer closes the connection and gets an error. Nothing is
  asked of the server for that, so it takes no longer when the server hangs.
- PostgreSQL's. A commit carries the moment until which somebody waits for it, and PostgreSQL checks it last.
  The moment is in PostgreSQL's own time: it told its clock before, and we add what our monotonic clock
  measured since. The clocks of two hosts are never compared.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg import AsyncConnection, OperationalError, waiting
from psycopg.abc import PQGen
from psycopg.errors import _WaitTimeout
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow

from weir.control.sql import NamedQuery, Row

T = TypeVar("T")

DEFAULT_ANSWER_S = 5.0
"""Long for a statement of a request, which touches few rows; short for a person who waits for the answer."""
DEFAULT_IDLE_S = 20.0
"""How long PostgreSQL keeps the locks of a transaction whose process does not speak: it may be frozen."""
CLOCK_FRESH_S = 30.0
"""How long a reading of PostgreSQL's clock is used: at 200 ppm of drift it is then 6 ms off."""
_INTERVAL_S = 0.1
_INTERRUPTED = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)
_READ_CLOCK = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms"
"""Spelled out, because the clock is also read before the schema exists."""
_SHORTER = "SELECT set_config('statement_timeout', %s, true)"
_SOONER = 950
"""In ms per second that we wait: PostgreSQL's own error arrives in time, and the connection can be kept."""


class AnswerTimeout(OperationalError):
    """PostgreSQL did not answer in time; the connection is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """What PostgreSQL's clock said, and when the answer was here."""

    server_ms: int
    at_s: float

    def server_time_ms(self, moment_s: float) -> int:
        """PostgreSQL's time at a moment of our monotonic clock; too early by the way of the answer."""
        return self.server_ms + int((moment_s - self.at_s) * 1_000)


class BoundedConnection(AsyncConnection[DictRow]):
    """Made by the pool of a `Database`."""

    answer_s: float = DEFAULT_ANSWER_S
    """How long an answer may take."""
    until_s: float = math.inf
    """When the whole loan ends, by our monotonic clock."""
    _clock: ClockReading | None = None

    @property
    def knows_clock(self) -> bool:
        """Whether a commit could be given a deadline now."""
        return self._clock is not None and time.monotonic() - self._clock.at_s < CLOCK_FRESH_S

    async def wait(self, gen: PQGen[T], interval: float = _INTERVAL_S, timeout: float | None = None) -> T:
        """Every exchange with the server goes through here. A given `timeout` is its caller's to handle."""
        patience_s = self._patience_s() if timeout is None else timeout
        try:
            return await waiting.wait_async(gen, self.pgconn.socket, interval=interval, timeout=patience_s)
        except _WaitTimeout:
            if timeout is not None:
                raise
            self._give_up(gen)
            raise AnswerTimeout(f"no answer within {patience_s:.1f} s") from None
        except _INTERRUPTED:
            # psycopg would ask the server to cancel, which takes 10 s where the server hangs.
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self._give_up(gen)
            raise

    def _give_up(self, gen: PQGen[Any]) -> None:
        """Close the connection in the middle of an exchange, and the exchange with it.

        psycopg's generators speak to the server once more when they are closed; without a connection that is
        an error, which would otherwise be reported as unraisable whenever they are collected.
        """
        self.pgconn.finish()
        with suppress(Exception):
            gen.close()

    def _patience_s(self) -> float:
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            self.pgconn.finish()
            raise AnswerTimeout("the time for this was over before it was sent")
        return min(self.answer_s, left_s)

    async def prepare_session(self) -> None:
        """Let PostgreSQL end what nobody waits for any more, and read its clock."""
        await self._told_clock(f"{_timeouts('SET', self.answer_s, DEFAULT_IDLE_S)}; {_READ_CLOCK}")

    async def read_clock(self) -> None:
        """Read PostgreSQL's clock; as good a sign of life as any."""
        await self._told_clock(_READ_CLOCK)

    async def begin(self, *, idle_s: float | None = None) -> None:
        """Begin a transaction, in one round trip with everything that bounds it."""
        if idle_s is None:
            await self._told_clock(f"BEGIN; {_READ_CLOCK}")
        else:
            await self._told_clock(f"BEGIN; {_timeouts('SET LOCAL', self.answer_s, idle_s)}; {_READ_CLOCK}")

    async def commit_in_time(self) -> None:
        """Commit, unless PostgreSQL gets to it when nobody waits for it any more.

        Both go as one message, of which PostgreSQL does not execute the rest when a part fails.
        """
        await self.execute(f"SELECT weir.require_before({self._deadline_ms()}); COMMIT", prepare=False)

    async def write(self, query: NamedQuery, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        """Execute one writing statement by itself, in time or not at all; its rows, and how many it touched.

        The statement and the check are one implicit transaction, in one round trip.
        """
        async with self.pipeline():
            if self.until_s < math.inf:
                await self.execute(_SHORTER, (f"{round(self._patience_s() * _SOONER)}ms",))
            cursor = await self.execute(query.text, parameters)
            await self.execute("SELECT weir.require_before(%s)", (self._deadline_ms(),))
        rows = list(await cursor.fetchall()) if cursor.description else []
        return rows, cursor.rowcount

    def _deadline_ms(self) -> int:
        if self._clock is None:
            raise RuntimeError("the clock is read when a connection is made")
        return self._clock.server_time_ms(time.monotonic() + self._patience_s())

    async def _told_clock(self, statements: str) -> None:
        """Execute statements of which the last tells PostgreSQL's clock."""
        cursor = await self.execute(statements, prepare=False)
        while cursor.nextset():
            pass
        row = await cursor.fetchone()
        if row is not None:
            self._clock = ClockReading(server_ms=row["now_ms"], at_s=time.monotonic())


def _timeouts(verb: str, answer_s: float, idle_s: float) -> str:
    statement_ms, idle_ms = round(answer_s * _SOONER), round(idle_s * 1_000)
    return (
        f"{verb} statement_timeout = {statement_ms}; {verb} idle_in_transaction_session_timeout = {idle_ms}"
    )
