"""Sends the progress of a task from any thread: the newest value, one request at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

from weir.client.errors import ClientError
from weir.errors import WeirError
from weir.tasks.context import PROGRESS_EVERY_S

_NOTHING = object()


class ProgressSender:
    """Sends what a task tells; values that come faster than they go are left out, but never the last."""

    def __init__(self, send: Callable[[object], Awaitable[object]], loop: asyncio.AbstractEventLoop) -> None:
        self._send = send
        self._loop = loop
        self._next: object = _NOTHING
        self._task: asyncio.Task[None] | None = None

    def note(self, value: object) -> None:
        """Take a value. One that has no JSON form is a TypeError here, where the task told it."""
        json.dumps(value)
        self._loop.call_soon_threadsafe(self._take, value)

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
                value, self._next = self._next, _NOTHING
                # Progress is a courtesy: if it cannot be sent now, the next value may be.
                with suppress(ClientError, WeirError):
                    await self._send(value)
                await asyncio.sleep(PROGRESS_EVERY_S)
        finally:
            self._task = None
