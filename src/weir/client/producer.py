"""A producer that gathers: many small pushes become few requests, in order."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from weir.client.core import MAX_BATCH, AsyncWeir
from weir.client.values import OutgoingMessage, PushResult


class Producer:
    """Sends what was given to it in batches, one request at a time, so that order is kept.

    async with Producer(weir) as producer:
        result = await producer.push("orders", {"order": 42})   # a future
    await result
    """

    def __init__(
        self, weir: AsyncWeir, *, max_batch: int = 500, linger_s: float = 0.005, max_waiting: int = 10_000
    ) -> None:
        self._weir = weir
        self._max_batch = min(max_batch, MAX_BATCH)
        self._linger_s = linger_s
        self._room = asyncio.Semaphore(max_waiting)
        self._waiting: list[tuple[OutgoingMessage, asyncio.Future[PushResult]]] = []
        self._filled = asyncio.Event()
        self._closing = False
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._sender = asyncio.create_task(self._send_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def push(self, queue: str, payload: Any, **fields: Any) -> asyncio.Future[PushResult]:
        """Take one message; waits only while too many are waiting already."""
        if self._closing or self._sender is None:
            raise RuntimeError("the producer is closed")
        await self._room.acquire()
        future: asyncio.Future[PushResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((OutgoingMessage(queue=queue, payload=payload, **fields), future))
        self._filled.set()
        return future

    async def aclose(self) -> None:
        """Send what is left, then stop."""
        self._closing = True
        self._filled.set()
        if self._sender is not None:
            await self._sender

    async def _send_all(self) -> None:
        while True:
            await self._filled.wait()
            if not self._waiting and self._closing:
                return
            if len(self._waiting) < self._max_batch and not self._closing:
                await asyncio.sleep(self._linger_s)
            batch, self._waiting = self._waiting[: self._max_batch], self._waiting[self._max_batch :]
            if not self._waiting and not self._closing:
                self._filled.clear()
            if batch:
                await self._send(batch)

    async def _send(self, batch: list[tuple[OutgoingMessage, asyncio.Future[PushResult]]]) -> None:
        try:
            results = await self._weir.push_many([message for message, _ in batch])
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)
        finally:
            for _ in batch:
                self._room.release()
