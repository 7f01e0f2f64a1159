"""The same client for code without an event loop: a thin façade over a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, Self, TypeVar

import httpx2

from weir.client.core import AsyncWeir
from weir.client.values import Operation, OutgoingMessage, PushResult, ReceivedMessage

T = TypeVar("T")


class Weir:
    """A blocking client; the methods are those of `AsyncWeir`.

    with Weir("http://127.0.0.1:8420", token="weir_…") as weir:
        weir.push("orders", {"order": 42})
    """

    def __init__(
        self, base_urls: str | Sequence[str], *, http: httpx2.AsyncClient | None = None, **given: Any
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="weir-client", daemon=True)
        self._thread.start()
        self._client = self._run(_made(base_urls, http, given))
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._run(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def push(self, queue: str, payload: Any, **fields: Any) -> PushResult:
        return self._run(self._client.push(queue, payload, **fields))

    def push_many(self, messages: Sequence[OutgoingMessage]) -> list[PushResult]:
        return self._run(self._client.push_many(messages))

    def pop(self, queue: str | None = None, **how: Any) -> list[ReceivedMessage]:
        return self._run(self._client.pop(queue, **how))

    def ack(self, message: ReceivedMessage) -> str:
        return self._run(self._client.ack(message))

    def ack_many(self, messages: Sequence[ReceivedMessage]) -> list[str]:
        return self._run(self._client.ack_many(messages))

    def nack(self, message: ReceivedMessage, **how: Any) -> str:
        return self._run(self._client.nack(message, **how))

    def extend(self, message: ReceivedMessage, *, lease_ms: int) -> ReceivedMessage:
        return self._run(self._client.extend(message, lease_ms=lease_ms))

    def operation(self, operation_id: str) -> Operation:
        return self._run(self._client.operation(operation_id))

    def wait_for_operation(self, operation_id: str, *, timeout_s: float | None = None) -> Operation:
        return self._run(self._client.wait_for_operation(operation_id, timeout_s=timeout_s))

    def cancel_operation(self, operation_id: str) -> Operation:
        return self._run(self._client.cancel_operation(operation_id))

    def retry_operation(self, operation_id: str) -> Operation:
        return self._run(self._client.retry_operation(operation_id))

    def operation_stats(self) -> dict[str, Any]:
        return self._run(self._client.operation_stats())

    def queue(self, name: str) -> dict[str, Any]:
        return self._run(self._client.queue(name))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


async def _made(
    base_urls: str | Sequence[str], http: httpx2.AsyncClient | None, given: dict[str, Any]
) -> AsyncWeir:
    return AsyncWeir(base_urls, http=http, **given)
