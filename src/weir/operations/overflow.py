"""The way into the operation queue: gate first, then PostgreSQL, then the ticket."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

from weir.admission.admission import Admission
from weir.admission.kinds import OperationType
from weir.broker.broker import Broker, Gated
from weir.errors import BrokerUnavailable, Overloaded
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.operations.estimate import UNKNOWN, Rate
from weir.operations.model import NewOperation, Reason, Ticket
from weir.operations.queue import NotQueued
from weir.operations.reach import Reach
from weir.operations.writer import OperationWriter

REFUSALS_PER_S = 300
"""How many refusals a second a process wants to give; with more, callers are asked to stay away longer."""


class RecentCount:
    """How many times something happened in about the last second."""

    def __init__(self) -> None:
        self._value = 0.0
        self._at = time.monotonic()

    def count(self) -> float:
        """Count one more; the sum, in which what is long ago fades."""
        now = time.monotonic()
        self._value = self._value * math.exp(self._at - now) + 1
        self._at = now
        return self._value


class Overflow:
    """Queues operations and says where they stand."""

    def __init__(
        self,
        *,
        broker: Broker,
        writer: OperationWriter,
        admission: Admission,
        reach: Reach,
        rate: Callable[[], Rate],
    ) -> None:
        self._broker = broker
        self._writer = writer
        self._admission = admission
        self._reach = reach
        self._rate = rate
        self._shards = broker.shards
        self._refusals = RecentCount()
        self._known: dict[QueueRef, int] = {}

    def shard(self, queue: QueueRef) -> int:
        shard = self._known.get(queue)
        if shard is None:
            if len(self._known) > 10_000:
                self._known.clear()
            shard = self._known[queue] = shard_of(queue.scope, shards=self._shards)
        return shard

    def overloaded(self) -> Overloaded:
        """The refusal: come back once a tenth of the queue has drained, later if many others are refused."""
        depth = self._admission.depth
        drain_ms = self._rate().wait_ms(depth // 10) or 1_000
        wait_ms = max(drain_ms, self._refusals.count() / REFUSALS_PER_S * 1000)
        spread = 1 + random.random() / 2
        return Overloaded(
            f"this process is busy and {depth} operations are queued; try again later",
            retry_after_s=max(1.0, min(30.0, wait_ms / 1000)) * spread,
            quota=self._admission.policy.of(OperationType.PUSH).depth,
            **{"violated-policies": ["operations"]},
        )

    async def add(self, queue: QueueRef, operations: list[NewOperation], *, reason: Reason) -> list[Ticket]:
        """Queue pushes of one queue, in order with everything else of their partitions."""
        if self._is_full():
            raise self.overloaded()
        gates = [Gated(key=operation.key, operation=operation.id) for operation in operations]
        if not await self._close(queue, gates):
            operations = [operation.without_gate() for operation in operations]
            reason = Reason.BROKER_UNAVAILABLE
        try:
            with self._admission.entering():
                depth = await self._writer.add(operations)
        except NotQueued:
            if operations[0].gated:
                await self._open(queue, gates)
            raise
        return self._tickets(operations, depth=depth, reason=reason)

    async def add_alone(self, operation: NewOperation) -> Ticket:
        """Queue an operation that needs neither order nor a gate."""
        depth = await self._writer.add([operation])
        return self._tickets([operation], depth=depth, reason=Reason.BROKER_UNAVAILABLE)[0]

    def _is_full(self) -> bool:
        return self._admission.enabled and self._admission.full(OperationType.PUSH)

    async def _close(self, queue: QueueRef, gates: list[Gated]) -> bool:
        shard = self.shard(queue)
        if not self._reach.reachable(shard):
            return False
        try:
            await self._broker.close_gates(queue, gates)
        except BrokerUnavailable:
            self._reach.lost(shard)
            return False
        return True

    async def _open(self, queue: QueueRef, gates: list[Gated]) -> None:
        try:
            await self._broker.open_gates(queue, gates)
        except BrokerUnavailable:
            self._reach.lost(self.shard(queue))

    def _tickets(self, operations: list[NewOperation], *, depth: int, reason: Reason) -> list[Ticket]:
        rate = UNKNOWN if reason is Reason.BROKER_UNAVAILABLE else self._rate()
        first = max(1, depth - len(operations) + 1)
        return [
            Ticket(
                operation_id=operation.id,
                position=position,
                estimated_wait_ms=rate.wait_ms(position),
                reason=reason,
            )
            for position, operation in enumerate(operations, start=first)
        ]
