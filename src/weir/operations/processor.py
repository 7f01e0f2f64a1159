"""The processor: claim, run, settle, open gates. Every process may run one; they share the partitions."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

import structlog

from weir.admission.kinds import OperationType
from weir.broker.broker import Broker, Gated
from weir.errors import Unavailable, WeirError
from weir.model.ids import OperationId, new_id
from weir.model.item_loops import text_of
from weir.model.limits import MAX_BATCH
from weir.model.names import QueueRef
from weir.operations.estimate import RateMeter
from weir.operations.execute import GateLost, execute
from weir.operations.model import MAX_ROUND_BYTES, PACE_S, Claimed, OperationStatus, SettledOperation
from weir.operations.queue import OperationQueue

ChainRecorder = Callable[[QueueRef, str, str], None]
"""Records a message that came from another: its queue, its parent and its id."""
log = structlog.get_logger(__name__)

MAX_PARTITIONS = 256
"""Partitions that one round claims at most."""
MAX_RUN = 200
"""Operations of one partition that one round claims at most."""
MAX_OPERATIONS = 500
"""Operations that one round claims at most."""
FIRST_REST_S = 0.1
"""Pause before the next look at an empty queue. It doubles with every look that finds nothing."""
LONGEST_REST_S = 0.5
"""The pause never grows beyond this. An operation that this process queues ends the pause at once."""
TROUBLE_S = 0.5
"""Pause after PostgreSQL or Redis failed."""
SMALL_ROUND = 100
"""Operations of one round under pressure."""


class Processor:
    """Drains the operation queue until cancelled; survives outages of either store."""

    def __init__(
        self,
        *,
        queue: OperationQueue,
        broker: Broker,
        meter: RateMeter,
        worker: str | None = None,
        partitions: int = MAX_PARTITIONS,
        run: int = MAX_RUN,
        total: int = MAX_OPERATIONS,
        pressed: Callable[[], bool] = lambda: False,
        chained: ChainRecorder | None = None,
    ) -> None:
        self._queue = queue
        self._broker = broker
        self._meter = meter
        self.worker = worker or new_id()
        self._sizes = {"partitions": partitions, "run": run, "total": total}
        self._pressed = pressed
        self._chained = chained
        self.finished: Counter[tuple[str, OperationStatus]] = Counter()
        """Operations that this process ended, by type and status."""
        self._woken = asyncio.Event()
        self._left_behind_at: float | None = None
        """When the last round ended, if it could not take everything."""

    def wake(self) -> None:
        """Something was queued; do not wait for the next look."""
        self._woken.set()

    async def run(self) -> None:
        rest_s = FIRST_REST_S
        while True:
            # Before the look: an operation that is queued during the look must end the pause after it.
            self._woken.clear()
            try:
                busy = await self.run_round()
            except WeirError as error:
                log.warning("the operation queue is not drained for now", error=str(error))
                await asyncio.sleep(TROUBLE_S)
                continue
            except Exception:
                log.exception("a round of the operation queue failed")
                await asyncio.sleep(TROUBLE_S)
                continue
            if not busy:
                woken = await self._rest(rest_s)
                rest_s = FIRST_REST_S if woken else min(2 * rest_s, LONGEST_REST_S)
                continue
            rest_s = FIRST_REST_S
            if busy < SMALL_ROUND and self._pressed():
                await asyncio.sleep(PACE_S)

    async def _rest(self, rest_s: float) -> bool:
        """Pause; return whether something was queued during the pause."""
        try:
            async with asyncio.timeout(rest_s):
                return await self._woken.wait()
        except TimeoutError:
            return False

    async def run_round(self) -> int:
        """Claim and run once; return how many operations were finished."""
        started = self._left_behind_at or time.perf_counter()
        self._left_behind_at = None
        claimed = await self._queue.claim(worker=self.worker, **self._sizes)
        if not claimed:
            return 0
        results = await execute(self._broker, claimed)
        results = await self._reclose(claimed, results)
        ages = await self._settle(results)
        finished = {r.id for r in results if r.status is not OperationStatus.PENDING and r.id in ages}
        types = {operation.id: operation.type for operation in claimed}
        self.finished.update((types[r.id], r.status) for r in results if r.id in finished)
        self._record_chained(claimed, [r for r in results if r.id in finished])
        await self._open([operation for operation in claimed if operation.id in finished])
        ended, room = time.perf_counter(), self._room(claimed)
        self._left_behind_at = ended if len(claimed) >= room else None
        self._meter.note_round(
            operations=len(finished),
            room=room,
            took_s=ended - started,
            ages_ms=[ages[operation_id] for operation_id in finished],
        )
        return len(finished)

    async def _settle(self, results: list[SettledOperation]) -> dict[OperationId, int]:
        """Store the results; one that PostgreSQL refuses fails for itself, and not with all others."""
        try:
            return await self._queue.settle(results, worker=self.worker)
        except Unavailable:
            raise
        except Exception as error:
            if len({result.partition for result in results}) == 1:
                log.warning("results of operations could not be stored", error=text_of(error))
                failed = [_unstorable(result, error) for result in results]
                return await self._queue.settle(failed, worker=self.worker)
        partitions: dict[int, list[SettledOperation]] = defaultdict(list)
        for result in results:
            partitions[result.partition].append(result)
        ages: dict[OperationId, int] = {}
        for group in partitions.values():
            ages |= await self._settle(group)
        return ages

    def _record_chained(self, claimed: Sequence[Claimed], finished: Sequence[SettledOperation]) -> None:
        """Record children, now that it is known under which id a message with a key is in its queue."""
        chained = {one.id: one.chained for one in finished if one.chained}
        if self._chained is None or not chained:
            return
        for operation in claimed:
            for parent_id, message_id in chained.get(operation.id, ()):
                self._chained(operation.queue, parent_id, message_id)

    def _room(self, claimed: list[Claimed]) -> int:
        """How many operations of this size a round takes."""
        messages = max(1, sum(one.messages for one in claimed))
        size = max(1, sum(len(one.payload) for one in claimed))
        most = min(MAX_BATCH / messages, MAX_ROUND_BYTES / size)
        return min(self._sizes["total"], math.ceil(most * len(claimed)))

    async def _reclose(
        self, claimed: Sequence[Claimed], results: list[SettledOperation]
    ) -> list[SettledOperation]:
        """Deal with operations that were not on their gate. If they are still ours and not void, the broker
        lost the gate: close it again."""
        lost = [result.id for result in results if result.error == GateLost.__name__]
        if not lost:
            return results
        mine = await self._queue.find_still_mine(lost, worker=self.worker)
        void: set[str] = set()
        for queue, gates in _gates(c for c in claimed if c.id in mine).items():
            try:
                granted = await self._broker.close_gates(queue, gates)
            except WeirError as error:
                # Its operations are tried again, and then say why themselves.
                log.warning("gates stay open for now", queue=queue.queue, error=str(error))
                continue
            void.update(gate.operation for gate, one in zip(gates, granted, strict=True) if one is None)
        if len(mine) > len(void):
            log.warning("closed gates again that the broker had lost", gates=len(mine) - len(void))
        return [
            _voided(result) if result.id in void else result
            for result in results
            if result.id in mine or result.id not in lost
        ]

    async def _open(self, finished: list[Claimed]) -> None:
        """Let direct enqueues through again where nothing is queued any more."""
        for queue, gates in _gates(c for c in finished if c.type == OperationType.PUSH).items():
            try:
                await self._broker.open_gates(queue, gates)
            except WeirError as error:
                # `OrphanGates` opens them later.
                log.warning("gates stay closed for now", queue=queue.queue, error=str(error))


def _voided(result: SettledOperation) -> SettledOperation:
    text = "its producer was told that it is not queued, because PostgreSQL did not answer in time"
    return SettledOperation(
        id=result.id, partition=result.partition, status=OperationStatus.CANCELLED, error=text
    )


def _unstorable(result: SettledOperation, error: Exception) -> SettledOperation:
    return SettledOperation(
        id=result.id,
        partition=result.partition,
        status=OperationStatus.FAILED,
        error=f"it ran, and its result could not be stored: {text_of(error)}",
    )


def _gates(operations: Iterable[Claimed]) -> dict[QueueRef, list[Gated]]:
    gates: dict[QueueRef, list[Gated]] = defaultdict(list)
    for operation in operations:
        gate = Gated(key=operation.key, operation=operation.id, messages=operation.messages)
        gates[operation.queue].append(gate)
    return gates
