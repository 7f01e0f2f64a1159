"""Many requests, few calls: messages that arrive while a call is under way share the next one.

The first message goes at once, so an idle server adds no wait; under load one call to the store carries
up to a thousand messages, in the order in which they arrived.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from weir.exchange.seam import PushAnswer, Pusher, PushItem
from weir.model.limits import MAX_BATCH
from weir.model.names import QueueRef

MAX_BATCH_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class _Lane:
    waiting: deque[tuple[PushItem, asyncio.Future[PushAnswer]]] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


class HookCoalescer:
    """Puts single messages into queues through a `Pusher`, batch by batch and queue by queue."""

    def __init__(self, pusher: Pusher) -> None:
        self._pusher = pusher
        self._lanes: dict[QueueRef, _Lane] = {}

    async def push(self, item: PushItem) -> PushAnswer:
        """The answer for one message; whoever gives up waiting does not take it back."""
        lane = self._lanes.get(item.queue)
        if lane is None:
            lane = self._lanes[item.queue] = _Lane()
        future: asyncio.Future[PushAnswer] = asyncio.get_running_loop().create_future()
        lane.waiting.append((item, future))
        if lane.task is None:
            lane.task = asyncio.create_task(self._drain(item.queue, lane))
        return await future

    async def _drain(self, queue: QueueRef, lane: _Lane) -> None:
        try:
            while lane.waiting:
                await self._send(_taken(lane))
        finally:
            lane.task = None
            self._lanes.pop(queue, None)

    async def _send(self, batch: list[tuple[PushItem, asyncio.Future[PushAnswer]]]) -> None:
        try:
            answers = await self._pusher.push([item for item, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
                    # A request that was dropped meanwhile has nobody left to look at its error.
                    future.exception()
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)


def _taken(lane: _Lane) -> list[tuple[PushItem, asyncio.Future[PushAnswer]]]:
    """The next batch, bounded in number and in bytes."""
    batch: list[tuple[PushItem, asyncio.Future[PushAnswer]]] = []
    size = 0
    while lane.waiting and len(batch) < MAX_BATCH and size < MAX_BATCH_BYTES:
        entry = lane.waiting.popleft()
        size += len(entry[0].message.payload)
        batch.append(entry)
    return batch
