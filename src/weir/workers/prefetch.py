"""Holds the messages that wait for a slot, and says how many more to fetch ahead.

A worker fetches ahead as many messages as its slots finish in 50 ms, by the recent times of each queue's
handlers. For short handlers that is hundreds, so that one call brings many. For long handlers it is one, so
that a slow worker does not keep messages from others. A queue whose handlers were not timed yet counts as
slow.

Nothing is fetched ahead from a queue whose messages are tried once or twice: if the worker is killed,
whatever it holds has lost an attempt, and nobody knows that it never ran.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from weir.model.names import QueueRef
from weir.workers.averages import QueueAverages
from weir.workers.held import HeldMessage

# Longer than a claim takes, so that slots always have work. Short, because another worker may be idle.
AHEAD_S = 0.05
# Larger claims save less than 1 us per message.
MAX_AHEAD = 500
# Messages beyond this size wait in Redis instead.
MAX_AHEAD_BYTES = 16 << 20
# A worker whose settlements are slower than its handlers waits for them, or they would fill its memory.
MAX_UNSETTLED = 2_000
# A handler without any wait takes about a microsecond; the bound keeps the division sane.
_SHORTEST_S = 1e-6


class Prefetch:
    """Messages in the order of their claims. `fixed` is how many to fetch ahead, however slow handlers are.

    `unsettled` tells how many messages ended and are not settled yet, and `few_attempts` whether the messages
    of a queue have so few attempts that none may be lost.
    """

    def __init__(
        self,
        concurrency: int,
        *,
        fixed: int | None = None,
        unsettled: Callable[[], int] = lambda: 0,
        few_attempts: Callable[[QueueRef], bool] = lambda queue: False,
    ) -> None:
        self._few_attempts = few_attempts
        self._concurrency = concurrency
        self._fixed = fixed
        self._unsettled = unsettled
        self._by_queue: dict[QueueRef, QueueAverages] = {}
        self._waiting: deque[HeldMessage] = deque()
        self._waiting_s = 0.0
        self._waiting_bytes = 0
        self._running = 0
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """How many messages wait for a slot."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """How many messages have a slot."""
        return self._running

    @property
    def free_slots(self) -> int:
        """How many slots no message has or waits for; negative if more messages wait than slots are free."""
        return self._concurrency - self._running - len(self._waiting)

    def add(self, batch: Sequence[HeldMessage]) -> None:
        """Take the messages of one claim, which are of one queue."""
        averages = self._averages_of(batch[0].delivery.queue)
        averages.waiting += len(batch)
        for held in batch:
            held.averages, held.expected_s = averages, averages.handler_s
            self._waiting_bytes += len(held.delivery.payload)
        self._waiting_s += averages.handler_s * len(batch)
        self._waiting.extend(batch)

    def take(self) -> HeldMessage:
        """The message that waits longest; it now has a slot."""
        held = self._waiting.popleft()
        self._forget(held)
        self._running += 1
        return held

    def drop(self, held: HeldMessage) -> None:
        """Take out a message that waits and will get no slot."""
        self._waiting.remove(held)
        self._forget(held)
        self._changed.set()

    def free(self, held: HeldMessage, *, seconds: float) -> None:
        """Note that the handler of a message ended after `seconds`. Its slot is free."""
        self._running -= 1
        if held.averages is not None:
            held.averages.note(seconds=seconds, size=len(held.delivery.payload))
        self._changed.set()

    def follow(self, queues: set[QueueRef]) -> None:
        """Forget the averages of other queues, once none of their messages waits."""
        for queue in [queue for queue in self._by_queue if queue not in queues]:
            if self._by_queue[queue].waiting == 0:
                del self._by_queue[queue]

    def room(self, queue: QueueRef) -> int:
        """How many messages of a queue the worker takes now."""
        if self._unsettled() >= MAX_UNSETTLED:
            return 0
        unclaimed = self.free_slots
        if self._few_attempts(queue):
            return max(unclaimed, 0)
        if self._fixed is not None:
            return unclaimed + self._fixed
        return max(unclaimed, 0) + self._ahead(self._averages_of(queue))

    def look_again(self) -> None:
        """Let claims ask for room again: the number of unsettled messages has changed."""
        self._changed.set()

    async def wait_for_room(self, queue: QueueRef) -> int:
        """Wait until a claim is worthwhile: a slot is idle, or half of what was fetched ahead is used up."""
        while True:
            room = self.room(queue)
            if room > 0 and (self._has_idle_slots() or room >= self._worthwhile(queue)):
                return room
            self._changed.clear()
            await self._changed.wait()

    def _has_idle_slots(self) -> bool:
        return self.free_slots > 0

    def _worthwhile(self, queue: QueueRef) -> int:
        if self._fixed is not None:
            return 1
        return self._fitting(self._averages_of(queue), seconds=self._budget_s, size=MAX_AHEAD_BYTES) // 2

    def _ahead(self, average: QueueAverages) -> int:
        """How many messages fit into the rest of the 50 ms; at least one if time is left and none waits."""
        left_s, left_bytes = self._budget_s - self._waiting_s, MAX_AHEAD_BYTES - self._waiting_bytes
        found = self._fitting(average, seconds=left_s, size=left_bytes)
        # Without this a queue of long handlers would get nothing while one of short handlers has messages.
        is_next = average.waiting == 0 and self._waiting_s < self._budget_s
        return max(min(found, MAX_AHEAD - len(self._waiting)), 1 if is_next else 0)

    @staticmethod
    def _fitting(average: QueueAverages, *, seconds: float, size: int) -> int:
        """How many messages fit into so much time and into so many bytes."""
        by_time = int(seconds / max(average.handler_s, _SHORTEST_S))
        by_size = int(size / max(average.message_bytes, 1.0))
        return min(by_time, by_size, MAX_AHEAD)

    @property
    def _budget_s(self) -> float:
        return AHEAD_S * self._concurrency

    def _averages_of(self, queue: QueueRef) -> QueueAverages:
        found = self._by_queue.get(queue)
        if found is None:
            found = self._by_queue[queue] = QueueAverages(handler_s=self._budget_s)
        return found

    def _forget(self, held: HeldMessage) -> None:
        if held.averages is not None:
            held.averages.waiting -= 1
        self._waiting_s -= held.expected_s
        self._waiting_bytes -= len(held.delivery.payload)
        if not self._waiting:
            # Sums of floating-point numbers drift.
            self._waiting_s, self._waiting_bytes = 0.0, 0
