"""Claims messages: one loop per queue asks for messages while the worker has room for more of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from weir.broker.broker import Broker
from weir.errors import NotFound, Unavailable
from weir.model.limits import MAX_BATCH
from weir.model.message import Delivery
from weir.model.names import QueueRef
from weir.workers.prefetch import Prefetch

# How long one claim waits for a message. A draining worker waits this long for the call to return.
WAIT_MS = 1_000
# The pause while the broker is away, the queue unknown or its endpoint disabled.
BACKOFF_S = 0.5


class Claimer:
    """Asks one queue for messages until it is told to stop."""

    def __init__(
        self,
        broker: Broker,
        queue: QueueRef,
        *,
        consumer: str,
        prefetch: Prefetch,
        accept: Callable[[Sequence[Delivery]], None],
        first_limit: int,
        blocked: Callable[[], bool] = lambda: False,
        wait_ms: int = WAIT_MS,
    ) -> None:
        self._broker = broker
        self._queue = queue
        self._consumer = consumer
        self._prefetch = prefetch
        self._accept = accept
        self._blocked = blocked
        self._first_limit = self._limit = min(first_limit, MAX_BATCH)
        self._wait_ms = wait_ms
        self._stopping = False

    def stop(self) -> None:
        """Claim no more after the current call. Its messages are still taken."""
        self._stopping = True

    async def run(self) -> None:
        """Claim until stopped.

        If it is cancelled, no worker has the messages of its last call until their leases lapse.
        """
        while not self._stopping:
            room = await self._prefetch.wait_for_room(self._queue)
            if self._stopping:
                return
            if self._blocked():
                await asyncio.sleep(BACKOFF_S)
                continue
            try:
                await self._claim(min(room, self._limit))
            except (Unavailable, NotFound):
                await asyncio.sleep(BACKOFF_S)

    async def _claim(self, limit: int) -> None:
        found = await self._broker.dequeue(
            self._queue, consumer=self._consumer, limit=limit, wait_ms=self._wait_ms
        )
        # The claims of many queues may count on the same room. So a claim is large only after a full one.
        self._limit = min(self._limit * 2, MAX_BATCH) if len(found) == limit else self._first_limit
        if not found:
            return
        self._accept(found)
        if len(found) < limit:
            # Nothing else waits in the queue, so the handlers begin before the queue is asked again.
            await asyncio.sleep(0)
