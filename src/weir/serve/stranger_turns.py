"""Strangers' share of the event loop: of each turn of the loop, the time of a few requests.

Anybody may send requests without a credential, on as many connections as the process has, and each costs time
of the event loop that all tenants share. So strangers' requests begin in the order in which they arrived, and
per turn of the loop only as many as fit into `SHARE_S`. A connection has one request in progress, so
connections take turns.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Generator
from typing import Any

SHARE_S = 0.002
"""Time of one turn of the loop that strangers get. A push takes about ten turns, so a flood of strangers
delays it by about 20 ms."""
_FIRST_GUESS_S = 0.001
_ONE_IN = 4
"""Counting the time of every request would cost each webhook 10 us."""
_SLOWEST_DECAY = 0.9
"""The expected cost rises at once to that of a dearer request, and falls by a tenth with a cheaper one."""


class StrangerTurns:
    """Lets strangers' requests begin when it is their turn."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._cost_s = _FIRST_GUESS_S
        self._begun = 0
        self._left = 0
        """Requests that may still begin in this turn of the loop."""
        self._counting = False
        """Whether the next turn of the loop will be noticed."""

    async def run(self, request: Awaitable[None]) -> None:
        """Run the request when it is its turn. The time of the loop that it takes is counted for some."""
        await self._take_turn()
        self._begun += 1
        if self._begun % _ONE_IN:
            await request
            return
        timed = _Timed(request)
        try:
            await timed
        finally:
            self._cost_s = max(timed.took_s, _SLOWEST_DECAY * self._cost_s)

    async def _take_turn(self) -> None:
        if not self._counting:
            self._begin_turn()
        if self._left and not self._waiting:
            self._left -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def _begin_turn(self) -> None:
        self._counting = True
        self._left = max(1, int(SHARE_S / self._cost_s))
        asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._counting = False
        if not self._waiting:
            return
        self._begin_turn()
        while self._left and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._left -= 1


class _Timed(Awaitable[None]):
    """Awaits something and adds up the processor time of this thread that its steps take."""

    def __init__(self, work: Awaitable[None]) -> None:
        self._work = work
        self.took_s = 0.0

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._work.__await__()
        error: BaseException | None = None
        while True:
            began_s = time.thread_time()
            try:
                waits_for = next(steps) if error is None else steps.throw(error)
            except StopIteration:
                return
            finally:
                self.took_s += time.thread_time() - began_s
            error = None
            try:
                yield waits_for
            except BaseException as thrown:
                error = thrown
