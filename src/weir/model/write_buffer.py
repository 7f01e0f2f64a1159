"""A buffer of records for a store: it writes them in batches, and drops some rather than let callers wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import islice
from typing import Generic, TypeVar

from weir.model.asyncio_tasks import run_to_end

Record = TypeVar("Record")


async def _nothing() -> None:
    pass


class WriteBuffer(Generic[Record]):
    """A bounded buffer. `write` gets at most `batch` records; in a full buffer the oldest makes room."""

    def __init__(
        self, write: Callable[[list[Record]], Awaitable[None]], *, capacity: int, batch: int | None = None
    ) -> None:
        self._write = write
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
        """Write everything that waits. Records stay until they are written; an error is raised."""
        # One at a time, because two flushes would write the same records.
        async with self._flushing:
            while self._waiting:
                batch = list(islice(self._waiting, self._batch))
                await self._write(batch)
                for record in batch:
                    # A full buffer may have dropped some of them during the write.
                    if self._waiting and self._waiting[0] is record:
                        self._waiting.popleft()

    async def run(
        self,
        *,
        every_s: float,
        errors: tuple[type[Exception], ...],
        beside: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        """Flush until cancelled, and once more then; on one of `errors`, wait for the next round.

        After each flush `beside` is called.
        """
        try:
            while True:
                with suppress(*errors):
                    # To its end even when cancelled: half a flush would lose or repeat records.
                    await run_to_end(self.flush())
                    await beside()
                await asyncio.sleep(every_s)
        finally:
            with suppress(*errors):
                await self.flush()
