"""Closing and opening the gates of operations in the broker, queue by queue."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

from weir.broker.broker import Broker, Gated
from weir.errors import BrokerUnavailable, NotFound, WeirError
from weir.model.ids import OperationId
from weir.model.names import QueueRef
from weir.model.tasks import all_of
from weir.operations.model import NewOperation
from weir.operations.reach import BROKER_ANSWER_S, Reach

Known = Callable[[QueueRef], Awaitable[bool]]
"""Whether a queue is defined, asked when the broker cannot tell."""


async def _trusted(_: QueueRef) -> bool:
    return True


class Gates:
    """The gates of operations that are being queued; a broker out of reach leaves them open."""

    def __init__(
        self,
        *,
        broker: Broker,
        reach: Reach,
        known: Known | None = None,
        timeout_s: float = BROKER_ANSWER_S,
    ) -> None:
        self._broker = broker
        self._reach = reach
        self._known = known or _trusted
        self._timeout_s = timeout_s

    async def close(self, operations: Sequence[NewOperation]) -> dict[QueueRef, bool | WeirError]:
        """For each queue, whether its gates are closed now, or why its operations cannot be queued."""
        queues = _by_queue(operations)
        outcomes = await all_of([self._close(queue, group) for queue, group in queues.items()])
        return dict(zip(queues, outcomes, strict=True))

    async def open(self, operations: Sequence[NewOperation]) -> None:
        """Take back gates of operations that were not queued after all."""
        for queue, group in _by_queue(operations).items():
            try:
                await self._broker.open_gates(queue, _gated(group))
            except BrokerUnavailable:
                self._reach.lost(group[0].shard)

    async def void(self, operations: Sequence[NewOperation]) -> dict[OperationId, bool | WeirError]:
        """Of each operation, whether it will never run; False: it runs. An error: nobody knows."""
        queues = _by_queue(operations)
        outcomes = await all_of([self._void(queue, group) for queue, group in queues.items()])
        return {key: value for outcome in outcomes for key, value in outcome.items()}

    async def _void(self, queue: QueueRef, group: list[NewOperation]) -> dict[OperationId, bool | WeirError]:
        try:
            async with asyncio.timeout(self._timeout_s):
                void = await self._broker.void_gates(queue, _gated(group))
        except (WeirError, TimeoutError) as error:
            self._reach.lost(group[0].shard)
            reason = (
                error if isinstance(error, WeirError) else BrokerUnavailable("the broker does not answer")
            )
            return {operation.id: reason for operation in group}
        return {operation.id: one for operation, one in zip(group, void, strict=True)}

    async def _close(self, queue: QueueRef, group: list[NewOperation]) -> bool | WeirError:
        try:
            if await self._closed(queue, group):
                return True
            if await self._known(queue):
                return False
        except WeirError as error:
            return error
        return NotFound(f"there is no queue `{queue.queue}`; define it first")

    async def _closed(self, queue: QueueRef, group: list[NewOperation]) -> bool:
        shard = group[0].shard
        if not self._reach.reachable(shard):
            return False
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._broker.close_gates(queue, _gated(group))
        except (BrokerUnavailable, TimeoutError):
            self._reach.lost(shard)
            return False
        return True


def _by_queue(operations: Sequence[NewOperation]) -> dict[QueueRef, list[NewOperation]]:
    queues: dict[QueueRef, list[NewOperation]] = defaultdict(list)
    for operation in operations:
        queues[operation.queue].append(operation)
    return queues


def _gated(group: list[NewOperation]) -> list[Gated]:
    return [Gated(key=operation.key, operation=operation.id) for operation in group]
