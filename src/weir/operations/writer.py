"""Many requests, one commit: operations that arrive together close their gates and are written together.

Every answer is true, also while PostgreSQL hangs:

- Queued means durable, and in its place.
- Not queued means that the operation never runs. If PostgreSQL got it and did not answer, it is made void in
  the broker, whatever PostgreSQL does with it later.
- Not known is answered only if the broker is out of reach as well. PostgreSQL then still drops statements
  that it reads too late (see `control.bounded`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from weir.errors import ControlUnavailable, InvalidInput, Unavailable, WeirError
from weir.model.ids import OperationId
from weir.operations.gates import Closed, Gates
from weir.operations.lapse import AllowanceLapse
from weir.operations.model import NewOperation, queue_full
from weir.operations.payload import first_messages
from weir.operations.queue import Added, NotQueued, OperationQueue

MAX_COMMIT = 500
"""Operations in one commit, unless a single request brings more."""
COMMITS = 4
"""How many group commits run at once. Operations that arrive while they run gather for the next."""
GATHER_S = 3.0
"""How long an operation waits for its commit to begin, while earlier commits get no answer."""
CONFIRM_S = 0.4
"""How long PostgreSQL may take to confirm that it refuses allowances; keepers have the same patience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of operations that should be queued."""

    operations: list[NewOperation]
    """The operations that are durable now, each with as many messages as its queue has room for."""
    depth: int
    """How many operations are queued now."""
    gated: bool
    """Whether their gates are closed."""
    refused: dict[OperationId, WeirError]
    """The operations that are not queued after all."""


@dataclass(slots=True)
class _Waiting:
    """Operations of one queue, and the future that their caller waits for."""

    operations: list[NewOperation]
    done: asyncio.Future[Written]
    full: dict[OperationId, WeirError] = field(default_factory=dict)
    """Operations that their queue has no room for at all."""

    def fail(self, error: WeirError) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def succeed(self, depth: int, refused: dict[OperationId, WeirError] | None = None) -> None:
        if not self.done.done():
            gated = all(operation.gated for operation in self.operations)
            self.done.set_result(
                Written(
                    operations=self.operations,
                    depth=depth,
                    gated=gated,
                    refused={**self.full, **(refused or {})},
                )
            )

    def close(self, closed: Closed) -> None:
        """Keep the operations that may be queued, now that gates are closed."""
        outcomes = {operation.id: closed[operation.id] for operation in self.operations}
        failed = next((one for one in outcomes.values() if isinstance(one, WeirError)), None)
        if failed is not None:
            self.fail(failed)
            return
        full = [operation for operation in self.operations if outcomes[operation.id] == 0]
        self.full = {operation.id: queue_full(operation.queue) for operation in full}
        self.operations = [
            _within(operation, outcomes[operation.id])
            for operation in self.operations
            if operation.id not in self.full
        ]
        if not self.operations:
            self.succeed(0)


class OperationWriter:
    """Adds operations in group commits. While these run, operations gather for the next commit."""

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
        self._lapse = AllowanceLapse(partial(queue.ping, within_s=CONFIRM_S), allowance_s=queue.allowance_s)
        self._waiting: list[_Waiting] = []
        self._commits = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, operations: list[NewOperation]) -> Written:
        """Make operations of one queue durable, behind closed gates if they have one.

        If a gate could not be closed, this returns only when no direct write can overtake the operations.
        """
        waiting = _Waiting(operations, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._commits < COMMITS:
            self._commits += 1
            self._start(self._flush())
        await asyncio.wait({waiting.done}, timeout=GATHER_S)
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            raise NotQueued(
                "PostgreSQL does not answer, so nothing can be queued; try again", retry_after_s=1
            )
        # From here on every step is bounded, and its outcome is worth waiting for.
        return await waiting.done

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
                batch = await self._close_gates(batch)
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
            if count and size > MAX_COMMIT:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _close_gates(self, batch: list[_Waiting]) -> list[_Waiting]:
        """Close gates where the broker can be reached; return the requests that can be queued."""
        ordered = [waiting for waiting in batch if waiting.operations[0].ordered]
        closed = await self._gates.close([one for waiting in ordered for one in waiting.operations])
        for waiting in ordered:
            waiting.close(closed)
        return [waiting for waiting in batch if not waiting.done.done()]

    async def _write(self, batch: list[_Waiting]) -> None:
        operations = [operation for waiting in batch for operation in waiting.operations]
        try:
            added = await self._queue.add(operations)
        except ControlUnavailable as error:
            await self._make_void(batch, error)
            return
        except WeirError as error:
            if len(batch) > 1 and isinstance(error, InvalidInput):
                # One of them cannot be stored. Each is written by itself, so that the others are queued.
                await self._write_each(batch)
                return
            await self._gates.open([one for one in operations if one.behind_gate])
            raise
        self._added(added.depth)
        self._answer(batch, added)

    async def _write_each(self, batch: list[_Waiting]) -> None:
        for waiting in batch:
            try:
                await self._write([waiting])
            except WeirError as error:
                waiting.fail(error)

    async def _make_void(self, batch: list[_Waiting], silence: WeirError) -> None:
        """PostgreSQL may or may not have taken these. Make them void, and find out which already run."""
        behind_gates = [waiting for waiting in batch if waiting.operations[0].behind_gate]
        void = await self._gates.void([one for waiting in behind_gates for one in waiting.operations])
        for waiting in batch:
            fates = [void.get(operation.id, silence) for operation in waiting.operations]
            refused = {
                operation.id: _refusal(fate)
                for operation, fate in zip(waiting.operations, fates, strict=True)
                if fate is not False
            }
            waiting.succeed(len(waiting.operations), refused)

    def _answer(self, batch: list[_Waiting], added: Added) -> None:
        if all(operation.gated for waiting in batch for operation in waiting.operations):
            _succeed(batch, added.depth)
        else:
            self._start(self._hold(batch, added))

    async def _hold(self, batch: list[_Waiting], added: Added) -> None:
        """Wait until every direct allowance that held at the commit lapsed, and no later one can exist."""
        await self._lapse.wait(added.hold_ms / 1_000, end_early=lambda: self._close_open_gates(batch))
        _succeed(batch, added.depth)

    async def _close_open_gates(self, batch: list[_Waiting]) -> bool:
        """Try once more to close the gates that are open; return whether the broker closed all."""
        ungated = [one for waiting in batch for one in waiting.operations if not one.gated and one.ordered]
        closed = await self._gates.close(ungated, however_full=True)
        return all(isinstance(outcome, int) for outcome in closed.values())


def _within(operation: NewOperation, granted: int | WeirError | None) -> NewOperation:
    """The operation with as many messages as were granted; without a gate, all of them."""
    if granted is None:
        return operation.without_gate()
    if not isinstance(granted, int) or granted >= operation.messages:
        return operation
    return replace(operation, payload=first_messages(operation.payload, granted), messages=granted)


def _succeed(batch: list[_Waiting], depth: int) -> None:
    for waiting in batch:
        waiting.succeed(depth)


def _fail(batch: list[_Waiting], error: WeirError) -> None:
    for waiting in batch:
        waiting.fail(error)


def _refusal(fate: bool | WeirError) -> WeirError:
    if fate is True:
        return NotQueued("PostgreSQL did not answer, so it is not queued; try again", retry_after_s=1)
    return Unavailable(
        "neither store answers, so whether it is queued is not known; repeat it under its idempotency key",
        retry_after_s=1,
    )
