"""A buffer of records for a store: it writes them in batches, and drops some rather than let callers wait."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import islice
from typing import Generic, TypeVar

from weir.errors import Conflict, InvalidInput, WeirError
from weir.model.asyncio_tasks import run_to_end

log = logging.getLogger("weir.items")

Record = TypeVar("Record")


async def _nothing() -> None:
    pass


class WriteBuffer(Generic[Record]):
    """A bounded buffer. `write` gets at most `batch` records; in a full buffer the oldest makes room.

    After one of the errors `away` the records wait. A record that the store refuses, or that cannot be
    encoded, is found and left out, so that it does not keep the records of others here.
    """

    def __init__(
        self,
        write: Callable[[list[Record]], Awaitable[None]],
        *,
        capacity: int,
        away: tuple[type[Exception], ...],
        batch: int | None = None,
    ) -> None:
        self._write = write
        self._away = away
        self._batch = batch
        self._waiting: deque[Record] = deque(maxlen=capacity)
        self._flushing = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, record: Record) -> bool:
        """Take a record; returns whether an older one was dropped for it."""
        full = len(self._waiting) == self._waiting.maxlen
        self._waiting.append(record)
        return full

    async def flush(self) -> None:
        """Write everything that waits. While the store is away records stay, and its error is raised."""
        # One at a time, because two flushes would write the same records.
        async with self._flushing:
            while self._waiting:
                batch = list(islice(self._waiting, self._batch))
                await self._write_some(batch)
                for record in batch:
                    # A full buffer may have dropped some of them during the write.
                    if self._waiting and self._waiting[0] is record:
                        self._waiting.popleft()

    async def _write_some(self, batch: list[Record]) -> None:
        try:
            await self._write(batch)
        except Exception as error:
            about_a_record = isinstance(error, (InvalidInput, Conflict)) or not isinstance(error, WeirError)
            if isinstance(error, self._away) or not about_a_record:
                raise
            if len(batch) == 1:
                log.exception("a record cannot be written, and is left out")
                return
            middle = len(batch) // 2
            await self._write_some(batch[:middle])
            await self._write_some(batch[middle:])

    async def run(self, *, every_s: float, beside: Callable[[], Awaitable[None]] = _nothing) -> None:
        """Flush until cancelled, and once more then. After each flush `beside` is called."""
        try:
            while True:
                with suppress(*self._away):
                    # To its end even when cancelled: half a flush would lose or repeat records.
                    await run_to_end(self.flush())
                    await beside()
                await asyncio.sleep(every_s)
        finally:
            with suppress(*self._away):
                await self.flush()
