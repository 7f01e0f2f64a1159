"""Turns for work that takes much memory: one at a time per owner, and a few at a time of all owners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from weir.errors import Overloaded


class Turns:
    """Owners wait for their own work first, so an owner with much of it never keeps the others waiting."""

    def __init__(self, *, most: int, wait_s: float, what: str) -> None:
        self._wait_s = wait_s
        self._what = what
        self._places = asyncio.Semaphore(most)
        self._owners: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it while the block runs; Overloaded if it does not come in time."""
        lock, users = self._owners.get(owner, (asyncio.Lock(), 0))
        self._owners[owner] = lock, users + 1
        try:
            async with asyncio.timeout(self._wait_s) as waiting, lock, self._places:
                waiting.reschedule(None)
                yield
        except TimeoutError:
            if not waiting.expired():
                raise
            raise Overloaded(f"too many requests {self._what}; try again", retry_after_s=1) from None
        finally:
            lock, users = self._owners.pop(owner)
            if users > 1:
                self._owners[owner] = lock, users - 1
