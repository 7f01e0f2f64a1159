"""Many requests, one commit: operations that arrive together close their gates and are written together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from weir.errors import Unavailable, WeirError
from weir.operations.gates import Gates
from weir.operations.model import NewOperation
from weir.operations.queue import Added, NotQueued, OperationQueue

MAX_BATCH = 500
COMMITS = 4
"""Group commits at once: what arrives while they run gathers for the next."""
ANSWER_S = 8.0
"""How long anybody waits to be queued: longer than a direct lease, shorter than for ever."""


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
    """Adds operations in group commits: while they run, the next one gathers."""

    def __init__(
        self,
        queue: OperationQueue,
        *,
        gates: Gates,
        added: Callable[[int], None],
    ) -> None:
        self._queue = queue
        self._gates = gates
        self._added = added
        self._waiting: list[_Waiting] = []
        self._commits = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, operations: list[NewOperation]) -> Written:
        """Make operations of one queue durable, behind closed gates if they have one.

        Where a gate could not be closed this returns only when no direct write that ignores it can happen.
        """
        waiting = _Waiting(operations, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._commits < COMMITS:
            self._commits += 1
            self._start(self._flush())
        try:
            async with asyncio.timeout(ANSWER_S):
                return await waiting.done
        except TimeoutError:
            raise Unavailable(
                "PostgreSQL does not answer, so whether the operation is queued is not known; try again",
                retry_after_s=1,
            ) from None

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _flush(self) -> None:
        try:
            await self._commit_waiting()
        finally:
            self._commits -= 1

    async def _commit_waiting(self) -> None:
        while self._waiting:
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
        self._start(self._hold(batch, added))

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
