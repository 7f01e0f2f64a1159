"""Waits until no direct allowance holds any more, for operations that this process queued without gates.

PostgreSQL tells how long the allowances last that it granted. While it is silent, keepers extend them
without it, so the wait begins anew when it answers again. One asyncio task asks it for all operations that
wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from weir.errors import WeirError

log = structlog.get_logger(__name__)

ASK_EVERY_S = 0.2
PROLONG_S = 2.0
"""How much longer the wait may take if PostgreSQL is silent. Durable operations are then answered anyway."""


class AllowanceLapse:
    """The moment when the last direct allowance has lapsed."""

    def __init__(self, ping: Callable[[], Awaitable[None]], *, allowance_s: float) -> None:
        self._ping = ping
        self._allowance_s = allowance_s
        self._lapsed_s = 0.0
        self._latest_s = 0.0
        """The wait is not prolonged beyond this."""
        self._silent = False
        self._watch: asyncio.Task[None] | None = None

    async def wait(self, hold_s: float, *, end_early: Callable[[], Awaitable[bool]]) -> None:
        """Wait until allowances of `hold_s` from now have lapsed, or until `end_early` answers True.

        `end_early` is asked only while PostgreSQL is silent.
        """
        self._note(time.monotonic() + hold_s)
        while (left_s := self._lapsed_s - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, ASK_EVERY_S))
            if self._silent and await end_early():
                return

    def _note(self, lapsed_s: float) -> None:
        now_s = time.monotonic()
        if self._lapsed_s <= now_s:
            self._latest_s = lapsed_s + PROLONG_S
        self._lapsed_s = max(self._lapsed_s, lapsed_s)
        if self._lapsed_s > now_s and (self._watch is None or self._watch.done()):
            self._watch = asyncio.create_task(self._ask_again_and_again())

    async def _ask_again_and_again(self) -> None:
        while time.monotonic() < self._lapsed_s:
            await asyncio.sleep(ASK_EVERY_S)
            try:
                await self._ping()
                self._silent = False
            except WeirError:
                self._silent = True
                self._prolong()

    def _prolong(self) -> None:
        wanted_s = time.monotonic() + self._allowance_s
        if wanted_s > self._latest_s:
            log.warning("queued without a gate, and PostgreSQL does not confirm that nothing overtakes it")
        self._lapsed_s = max(self._lapsed_s, min(wanted_s, self._latest_s))
