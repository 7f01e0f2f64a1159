"""PostgreSQL's time, which all processes share, whatever the clocks of their hosts say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from weir.control.database import Database
from weir.control.sql import load_queries
from weir.errors import WeirError
from weir.model.clock import Clock, SystemClock

log = structlog.get_logger("weir.control")

SQL = load_queries("weir.control", "store_clock.sql")
ASK_EVERY_S = 10.0


class StoreClock:
    """PostgreSQL's clock: read every `ASK_EVERY_S`, and advanced by the monotonic clock in between.

    So a host whose clock is wrong or jumps judges windows, schedules and signatures like the others. Until
    PostgreSQL was asked once, it is the host's clock.
    """

    def __init__(
        self,
        database: Database,
        *,
        host: Clock | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._host = host or SystemClock()
        self._monotonic_s = monotonic_s
        self._offset_ms: float | None = None
        """PostgreSQL's time less the monotonic clock; None before the first answer."""

    def now_ms(self) -> int:
        if self._offset_ms is None:
            return self._host.now_ms()
        return round(self._monotonic_s() * 1_000 + self._offset_ms)

    async def ask(self) -> None:
        """Read the time from PostgreSQL. It is taken to be from the middle of the round trip."""
        asked_s = self._monotonic_s()
        row = await self._database.fetch_one(SQL["store_time"])
        middle_ms = (asked_s + self._monotonic_s()) / 2 * 1_000
        if row is not None:
            self._offset_ms = row["now_ms"] - middle_ms

    async def run(self) -> None:
        """Ask until cancelled; while PostgreSQL does not answer, the last answer is used."""
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            try:
                await self.ask()
            except WeirError as error:
                log.debug("PostgreSQL did not tell its time; the last answer is used", error=str(error))
