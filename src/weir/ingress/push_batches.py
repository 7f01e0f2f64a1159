"""Collects messages into batches: messages that arrive while a call runs share the next call.

The first message goes at once, so an idle server adds no wait. Under load one call carries up to a thousand
messages, in the order of their arrival.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from weir.exchange.seam import PushAnswer, Pusher, PushItem
from weir.model.limits import MAX_BATCH
from weir.model.names import QueueRef

# A call with more would keep Redis busy and hold up the others; a single larger message still goes alone.
MAX_BATCH_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class _QueueBatch:
    waiting: deque[tuple[PushItem, asyncio.Future[PushAnswer]]] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


class HookCoalescer:
    """Pushes single messages through a `Pusher` in batches, one batch per queue at a time."""

    def __init__(self, pusher: Pusher) -> None:
        self._pusher = pusher
        self._batches: dict[QueueRef, _QueueBatch] = {}

    async def push(self, item: PushItem) -> PushAnswer:
        """Push one message and return its answer; a caller that stops waiting does not withdraw it."""
        batch = self._batches.get(item.queue)
        if batch is None:
            batch = self._batches[item.queue] = _QueueBatch()
        future: asyncio.Future[PushAnswer] = asyncio.get_running_loop().create_future()
        batch.waiting.append((item, future))
        if batch.task is None:
            batch.task = asyncio.create_task(self._drain(item.queue, batch))
        return await future

    async def _drain(self, queue: QueueRef, batch: _QueueBatch) -> None:
        try:
            while batch.waiting:
                await self._send(_take(batch))
        finally:
            batch.task = None
            self._batches.pop(queue, None)

    async def _send(self, batch: list[tuple[PushItem, asyncio.Future[PushAnswer]]]) -> None:
        try:
            answers = await self._pusher.push([item for item, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
                    # The request may be gone. Reading the error keeps asyncio from logging it.
                    future.exception()
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)


def _take(batch: _QueueBatch) -> list[tuple[PushItem, asyncio.Future[PushAnswer]]]:
    """Take the messages of the next call, bounded in number and in bytes."""
    taken: list[tuple[PushItem, asyncio.Future[PushAnswer]]] = []
    size = 0
    while batch.waiting and len(taken) < MAX_BATCH and size < MAX_BATCH_BYTES:
        entry = batch.waiting.popleft()
        size += len(entry[0].message.payload)
        taken.append(entry)
    return taken
