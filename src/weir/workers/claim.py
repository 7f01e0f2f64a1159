"""Claims messages: one loop per queue asks for them while the worker can take more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from weir.broker.broker import Broker
from weir.errors import NotFound, Unavailable
from weir.model.limits import MAX_BATCH
from weir.model.message import Delivery
from weir.model.names import QueueRef

# How long one claim waits for a message. A draining worker waits this long for the call to return.
WAIT_MS = 1_000
# The pause while the broker is away, the queue unknown or its endpoint disabled.
BACKOFF_S = 0.5


class FreeSlots:
    """Counts how many more messages a worker takes: those that run at once plus those fetched ahead."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._changed = asyncio.Event()
        self._changed.set()

    @property
    def free(self) -> int:
        return self._free

    async def wait(self) -> int:
        """Wait until there is a free slot; how many are free."""
        while self._free <= 0:
            self._changed.clear()
            await self._changed.wait()
        return self._free

    def take(self, count: int) -> None:
        self._free -= count

    def give_back(self) -> None:
        self._free += 1
        self._changed.set()


class Claimer:
    """Asks one queue for messages until it is told to stop."""

    def __init__(
        self,
        broker: Broker,
        queue: QueueRef,
        *,
        consumer: str,
        capacity: FreeSlots,
        accept: Callable[[Delivery], None],
        blocked: Callable[[], bool] = lambda: False,
        batch: int = 100,
        wait_ms: int = WAIT_MS,
    ) -> None:
        self._broker = broker
        self._queue = queue
        self._consumer = consumer
        self._capacity = capacity
        self._accept = accept
        self._blocked = blocked
        self._batch = min(batch, MAX_BATCH)
        self._wait_ms = wait_ms
        self._stopping = False

    def stop(self) -> None:
        """Claim no more after the current call. Its messages are still taken."""
        self._stopping = True

    async def run(self) -> None:
        """Claim until stopped. Cancelling it may leave leases behind that nobody holds until they lapse."""
        while not self._stopping:
            free = await self._capacity.wait()
            if self._blocked():
                await asyncio.sleep(BACKOFF_S)
                continue
            try:
                await self._claim(min(free, self._batch))
            except (Unavailable, NotFound):
                await asyncio.sleep(BACKOFF_S)

    async def _claim(self, limit: int) -> None:
        found = await self._broker.dequeue(
            self._queue, consumer=self._consumer, limit=limit, wait_ms=self._wait_ms
        )
        self._capacity.take(len(found))
        for delivery in found:
            self._accept(delivery)
