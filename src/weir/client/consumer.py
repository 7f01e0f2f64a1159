"""A consumer: takes messages, keeps their leases alive, and settles them by what the handler does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from weir.client.core import AsyncWeir
from weir.client.errors import ApiError, ClientError
from weir.client.values import ReceivedMessage

Handler = Callable[[ReceivedMessage], Awaitable[None]]


class Reject(Exception):
    """Raised by a handler: give the message up at once, it will never succeed."""


class Consumer:
    """Runs a handler for each message: acked when it returns, nacked when it raises.

    await Consumer(weir, "orders", handle, concurrency=8).run()
    """

    def __init__(
        self,
        weir: AsyncWeir,
        queue: str | None,
        handler: Handler,
        *,
        concurrency: int = 10,
        lease_ms: int = 30_000,
        wait_ms: int = 20_000,
        name: str | None = None,
    ) -> None:
        self._weir = weir
        self._queue = queue
        self._handler = handler
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._wait_ms = wait_ms
        self._name = name
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Take no more messages; `run` returns when those in hand are settled."""
        self._stopping.set()

    async def run(self) -> None:
        """Consume until `stop`; trouble with the server is waited out."""
        while not self._stopping.is_set():
            free = self._concurrency - len(self._running)
            if free == 0:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                continue
            for message in await self._take(free):
                task = asyncio.create_task(self._handle(message))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        if self._running:
            await asyncio.wait(self._running)

    async def _take(self, limit: int) -> list[ReceivedMessage]:
        take = asyncio.create_task(
            self._weir.pop(
                self._queue,
                limit=limit,
                wait_ms=self._wait_ms,
                lease_ms=self._lease_ms,
                consumer=self._name,
            )
        )
        stop = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({take, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not take.done():
            take.cancel()
        try:
            return await take
        except (ClientError, asyncio.CancelledError):
            return []

    async def _handle(self, message: ReceivedMessage) -> None:
        keep = asyncio.create_task(self._keep_lease(message))
        try:
            with self._weir.telemetry.operation("process", queue=message.queue):
                await self._handler(message)
        except Reject as error:
            await self._settle(self._weir.nack(message, error=str(error), dead_letter=True))
        except Exception as error:
            await self._settle(self._weir.nack(message, error=f"{type(error).__name__}: {error}"))
        else:
            await self._settle(self._weir.ack(message))
        finally:
            keep.cancel()
            with suppress(asyncio.CancelledError):
                await keep

    async def _keep_lease(self, message: ReceivedMessage) -> None:
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            with suppress(ClientError):
                await self._weir.extend(message, lease_ms=self._lease_ms)

    async def _settle(self, settling: Awaitable[str]) -> None:
        """A lease that is lost means that the message goes to someone else; that is no error here."""
        with suppress(ApiError, ClientError):
            await settling
