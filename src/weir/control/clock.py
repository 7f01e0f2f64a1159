"""The time of the store, which all processes share, whatever the clocks of their hosts say."""

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

SQL = load_queries("weir.control", "clock.sql")
ASK_EVERY_S = 10.0


class StoreClock:
    """PostgreSQL's clock: asked now and then, and counted on in between without the host's clock.

    A host whose clock is wrong or steps then judges windows, schedules and signatures like the others. Until
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
        """What must be added to the monotonic clock."""

    def now_ms(self) -> int:
        if self._offset_ms is None:
            return self._host.now_ms()
        return round(self._monotonic_s() * 1_000 + self._offset_ms)

    async def ask(self) -> None:
        """Take the time from PostgreSQL: it was told in the middle of the round trip, give or take."""
        asked_s = self._monotonic_s()
        row = await self._database.fetch_one(SQL["store_time"])
        middle_ms = (asked_s + self._monotonic_s()) / 2 * 1_000
        if row is not None:
            self._offset_ms = row["now_ms"] - middle_ms

    async def run(self) -> None:
        """Ask for ever; while PostgreSQL does not answer, the last answer holds."""
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            try:
                await self.ask()
            except WeirError as error:
                log.debug("the time of the store is counted on", error=str(error))
