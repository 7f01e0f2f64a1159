"""Many requests, one commit: operations that arrive together close their gates and are written together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from weir.errors import WeirError
from weir.operations.gates import Gates
from weir.operations.model import NewOperation
from weir.operations.queue import Added, NotQueued, OperationQueue

MAX_BATCH = 500
GATHER_S = 0.01
"""Under pressure, how long a commit waits for company."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Operations that are durable: how many are queued now, and whether their gates are closed."""

    depth: int
    gated: bool


@dataclass(slots=True)
class _Waiting:
    """Operations of one queue, and who waits for them."""

    operations: list[NewOperation]
    done: asyncio.Future[Written]

    def fail(self, error: WeirError) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def succeed(self, depth: int) -> None:
        if not self.done.done():
            self.done.set_result(Written(depth=depth, gated=self.operations[0].gated))


class OperationWriter:
    """Adds operations in group commits: while one runs, the next one gathers."""

    def __init__(
        self,
        queue: OperationQueue,
        *,
        gates: Gates,
        added: Callable[[int], None],
        pressed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._queue = queue
        self._pressed = pressed
        self._gates = gates
        self._added = added
        self._waiting: list[_Waiting] = []
        self._flusher: asyncio.Task[None] | None = None
        self._holding: set[asyncio.Task[None]] = set()

    async def add(self, operations: list[NewOperation]) -> Written:
        """Make operations of one queue durable, behind closed gates if they have one.

        Where a gate could not be closed this returns only when no direct write that ignores it can happen.
        """
        waiting = _Waiting(operations, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        return await waiting.done

    async def _flush(self) -> None:
        while self._waiting:
            if self._pressed():
                await asyncio.sleep(GATHER_S)
            batch = self._take()
            try:
                batch = await self._behind_gates(batch)
                if batch:
                    await self._write(batch)
            except WeirError as error:
                _fail(batch, error)
            except BaseException as error:
                _fail(batch, WeirError(f"the operation could not be queued ({error}); try again"))
                raise

    def _take(self) -> list[_Waiting]:
        size, count = 0, 0
        for waiting in self._waiting:
            size += len(waiting.operations)
            if count and size > MAX_BATCH:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _behind_gates(self, batch: list[_Waiting]) -> list[_Waiting]:
        """Those that can be queued, their gates closed where the broker can be reached."""
        ordered = [waiting for waiting in batch if waiting.operations[0].ordered]
        closed = await self._gates.close([one for waiting in ordered for one in waiting.operations])
        for waiting in ordered:
            outcome = closed[waiting.operations[0].queue]
            if isinstance(outcome, WeirError):
                waiting.fail(outcome)
            elif not outcome:
                waiting.operations = [operation.without_gate() for operation in waiting.operations]
        return [waiting for waiting in batch if not waiting.done.done()]

    async def _write(self, batch: list[_Waiting]) -> None:
        operations = [operation for waiting in batch for operation in waiting.operations]
        try:
            added = await self._queue.add(operations)
        except NotQueued:
            await self._gates.open([one for one in operations if one.ordered and one.gated])
            raise
        self._added(added.depth)
        self._answer(batch, added)

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
        waiting.succeed(depth)


def _fail(batch: list[_Waiting], error: WeirError) -> None:
    for waiting in batch:
        waiting.fail(error)
