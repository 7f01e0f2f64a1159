"""Many requests, one commit: operations that arrive together are written to PostgreSQL together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from weir.errors import WeirError
from weir.operations.model import NewOperation
from weir.operations.queue import Added, OperationQueue

MAX_BATCH = 500


@dataclass(frozen=True, slots=True)
class _Waiting:
    operations: list[NewOperation]
    done: asyncio.Future[int]


class OperationWriter:
    """Adds operations in group commits: while one runs, the next one gathers."""

    def __init__(self, queue: OperationQueue, *, added: Callable[[int], None]) -> None:
        self._queue = queue
        self._added = added
        self._waiting: list[_Waiting] = []
        self._flusher: asyncio.Task[None] | None = None
        self._holding: set[asyncio.Task[None]] = set()

    async def add(self, operations: list[NewOperation]) -> int:
        """Make operations durable; returns how many are queued once they are.

        Operations without a closed gate return only when no direct write that ignores them can happen.
        """
        waiting = _Waiting(operations, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        return await waiting.done

    async def _flush(self) -> None:
        while self._waiting:
            batch = self._take()
            operations = [operation for waiting in batch for operation in waiting.operations]
            try:
                added = await self._queue.add(operations)
            except WeirError as error:
                _fail(batch, error)
                continue
            except BaseException as error:
                _fail(batch, WeirError(f"the operation could not be queued ({error}); try again"))
                raise
            self._added(added.depth)
            self._answer(batch, added)

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and (not batch or size + len(self._waiting[0].operations) <= MAX_BATCH):
            waiting = self._waiting.pop(0)
            size += len(waiting.operations)
            batch.append(waiting)
        return batch

    def _answer(self, batch: list[_Waiting], added: Added) -> None:
        if added.hold_ms <= 0:
            _succeed(batch, added.depth)
            return
        task = asyncio.create_task(self._hold(batch, added))
        self._holding.add(task)
        task.add_done_callback(self._holding.discard)

    async def _hold(self, batch: list[_Waiting], added: Added) -> None:
        """Wait until the direct lease lapsed. PostgreSQL must still answer then: a keeper that cannot
        reach it extends a living lease on its own."""
        await asyncio.sleep(added.hold_ms / 1000)
        try:
            await self._queue.ping()
        except WeirError as error:
            _fail(batch, error)
        else:
            _succeed(batch, added.depth)


def _succeed(batch: list[_Waiting], depth: int) -> None:
    for waiting in batch:
        if not waiting.done.done():
            waiting.done.set_result(depth)


def _fail(batch: list[_Waiting], error: WeirError) -> None:
    for waiting in batch:
        if not waiting.done.done():
            waiting.done.set_exception(error)
