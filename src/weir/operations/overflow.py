"""The way into the operation queue: is there room, then the writer, then the ticket."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

from weir.admission.admission import Admission
from weir.admission.kinds import OperationType
from weir.errors import Overloaded, WeirError
from weir.model.holders import HOLDER
from weir.model.ids import OperationId
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.operations.estimate import UNKNOWN, Rate
from weir.operations.model import NewOperation, Reason, Ticket
from weir.operations.writer import OperationWriter, Written

REFUSALS_PER_S = 300
"""How many refusals a second a process wants to give; with more, callers are asked to stay away longer."""


class RecentCount:
    """How many times something happened in about the last second."""

    def __init__(self) -> None:
        self._value = 0.0
        self._at = time.monotonic()

    def count(self, times: int) -> float:
        """Count some more; the sum, in which what is long ago fades."""
        now = time.monotonic()
        self._value = self._value * math.exp(self._at - now) + times
        self._at = now
        return self._value


class Overflow:
    """Queues operations and says where they stand."""

    def __init__(
        self,
        *,
        shards: int,
        writer: OperationWriter,
        admission: Admission,
        rate: Callable[[], Rate],
    ) -> None:
        self._writer = writer
        self._admission = admission
        self._rate = rate
        self._shards = shards
        self._refusals = RecentCount()
        self._known: dict[QueueRef, int] = {}

    def shard(self, queue: QueueRef) -> int:
        shard = self._known.get(queue)
        if shard is None:
            if len(self._known) > 10_000:
                self._known.clear()
            shard = self._known[queue] = shard_of(queue.scope, shards=self._shards)
        return shard

    def overloaded(self, *, refused: int = 1) -> Overloaded:
        """The refusal of so many: come back once a tenth of the queue has drained, later if many others are
        refused."""
        depth = self._admission.depth
        drain_ms = self._rate().wait_ms(depth // 10) or 1_000
        wait_ms = max(drain_ms, self._refusals.count(refused) / REFUSALS_PER_S * 1000)
        spread = 1 + random.random() / 2
        return Overloaded(
            f"this process is busy and {depth} operations are queued; try again later",
            retry_after_s=max(1.0, min(30.0, wait_ms / 1000)) * spread,
            quota=self._admission.policy.of(OperationType.PUSH).depth,
            reason=self._admission.rejection(OperationType.PUSH).value,
            **{"violated-policies": ["operations"]},
        )

    async def add(
        self, operations: list[NewOperation], *, reason: Reason, must: bool = False
    ) -> list[Ticket | WeirError]:
        """Queue pushes of one queue, in order with everything else of their partitions; an answer for each.

        A ticket says how many messages it is for: those for which the queue has room. With `must` they are
        queued however many there are: they may have taken effect already.
        """
        for_load = reason is not Reason.BROKER_UNAVAILABLE
        admission, holder = self._admission, HOLDER.get()
        if not must and not admission.may_queue(
            OperationType.PUSH, len(operations), holder, for_load=for_load
        ):
            raise self.overloaded()
        with admission.entering(sum(operation.messages for operation in operations), holder):
            written = await self._writer.add(operations)
        if for_load and not must:
            admission.not_queued(len(written.refused), holder)
        if not written.gated:
            reason = Reason.BROKER_UNAVAILABLE
        tickets = self._tickets(written, reason=reason)
        return [written.refused.get(one.id) or tickets[one.id] for one in operations]

    async def add_alone(self, operation: NewOperation) -> Ticket:
        """Queue an operation that needs neither order nor a gate."""
        written = await self._writer.add([operation])
        if written.refused:
            raise written.refused[operation.id]
        return self._tickets(written, reason=Reason.BROKER_UNAVAILABLE)[operation.id]

    def _tickets(self, written: Written, *, reason: Reason) -> dict[OperationId, Ticket]:
        rate = UNKNOWN if reason is Reason.BROKER_UNAVAILABLE else self._rate()
        first = max(1, written.depth - len(written.operations) + 1)
        return {
            operation.id: Ticket(
                operation_id=operation.id,
                position=position,
                estimated_wait_ms=rate.wait_ms(position),
                reason=reason,
                messages=operation.messages,
            )
            for position, operation in enumerate(written.operations, start=first)
        }
