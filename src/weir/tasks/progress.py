"""Sends the progress of a task from any thread: the newest value, one request at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from weir.tasks.context import PROGRESS_EVERY_S

log = structlog.get_logger("weir.tasks")
_NOTHING = object()
FLUSH_S = 2.0
"""How long a failed attempt waits for its last value to be sent."""


class ProgressSender:
    """Sends the values that a task tells. A newer value replaces a value that was not sent yet."""

    def __init__(self, send: Callable[[object], Awaitable[object]], loop: asyncio.AbstractEventLoop) -> None:
        self._send = send
        self._loop = loop
        self._next: object = _NOTHING
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def note(self, value: object) -> None:
        """Take a value. A value without a JSON form raises TypeError here, inside the task."""
        json.dumps(value)
        self._loop.call_soon_threadsafe(self._take, value)

    async def flush(self) -> None:
        """Send the last value now: the attempt failed, and how far it came is worth knowing.

        The message waits to be settled, so a value that cannot be sent in time is dropped.
        """
        # In this turn of the loop `_take` gets the values that were noted before.
        await asyncio.sleep(0)
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self._send_next()

    def stop(self) -> None:
        """Send nothing more: the message is about to be settled."""
        self._next = _NOTHING
        if self._task is not None:
            self._task.cancel()

    def _take(self, value: object) -> None:
        self._next = value
        if self._task is None:
            self._task = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        try:
            while self._next is not _NOTHING:
                await self._send_next()
                await asyncio.sleep(PROGRESS_EVERY_S)
        finally:
            self._task = None

    async def _send_next(self) -> None:
        # One at a time, so that an older value never comes after a newer one.
        async with self._sending:
            value, self._next = self._next, _NOTHING
            if value is not _NOTHING:
                try:
                    await self._send(value)
                except Exception as error:  # an odd value (NaN, a huge number) must not keep its message
                    # Progress may be lost: if this value cannot be sent, the next one may be.
                    log.debug("progress was not sent", error=str(error))
