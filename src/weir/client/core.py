"""The client itself: push, pop, settle, and what became of queued operations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self
from urllib.parse import quote

import httpx2

from weir.client.errors import ApiError, OperationFailed, OperationTimeout
from weir.client.options import ClientOptions, QueuedOperationBehavior, options
from weir.client.telemetry import telemetry
from weir.client.transport import Transport
from weir.client.values import Operation, OutgoingMessage, PushResult, ReceivedMessage

MAX_BATCH = 1_000
_POLL_MARGIN_S = 10.0


class AsyncWeir:
    """A client of the HTTP API.

        async with AsyncWeir("http://127.0.0.1:8420", token="weir_…") as weir:
            await weir.push("orders", {"order": 42}, key="customer-7")

    Several base URLs are tried in turn. Every request may be repeated without harm, so failures and
    429s are retried as the options say.
    """

    def __init__(
        self,
        base_urls: str | Sequence[str],
        *,
        http: httpx2.AsyncClient | None = None,
        **given: Any,
    ) -> None:
        self.options: ClientOptions = options(base_urls, **given)
        self._transport = Transport(self.options, http=http)
        self.telemetry = telemetry(self.options.telemetry)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._transport.aclose()

    # in

    async def push(self, queue: str, payload: Any, **fields: Any) -> PushResult:
        """Put one message into a queue; raises ApiError if it is refused."""
        (result,) = await self.push_many([OutgoingMessage(queue=queue, payload=payload, **fields)])
        if result.problem is not None:
            raise ApiError(int(result.problem.get("status", 0)), result.problem)
        return result

    async def push_many(self, messages: Sequence[OutgoingMessage]) -> list[PushResult]:
        """Put messages into queues; a result for each, in order. Refused ones carry their problem."""
        results: list[PushResult] = []
        for at in range(0, len(messages), MAX_BATCH):
            results += await self._push_batch(messages[at : at + MAX_BATCH])
        if self.options.queued_operation_behavior is QueuedOperationBehavior.POLL:
            return await self._settled(results)
        return results

    async def _push_batch(self, messages: Sequence[OutgoingMessage]) -> list[PushResult]:
        queues = {message.queue for message in messages}
        name = messages[0].queue if len(queues) == 1 else None
        with self.telemetry.operation("send", queue=name, messages=len(messages)) as headers:
            if headers:
                messages = [replace(m, headers={**headers, **m.headers}) for m in messages]
            body = {"items": [message.document() for message in messages]}
            answer = await self._transport.send("POST", "/api/v1/push", body=body)
        return [PushResult.of(item) for item in answer["items"]]

    async def _settled(self, results: list[PushResult]) -> list[PushResult]:
        """Wait for the queued ones; each then says what became of it."""
        waiting = {result.operation_id for result in results if result.operation_id is not None}
        ended = {one: await self.wait_for_operation(one) for one in sorted(waiting)}
        return [
            _after(result, ended[result.operation_id]) if result.operation_id else result
            for result in results
        ]

    # out

    async def pop(
        self,
        queue: str | None = None,
        *,
        limit: int = 1,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        consumer: str | None = None,
    ) -> list[ReceivedMessage]:
        """Take messages under leases; without a queue, from any of the environment."""
        body: dict[str, Any] = {"limit": limit, "wait_ms": wait_ms}
        body |= {
            name: value
            for name, value in (("queue", queue), ("lease_ms", lease_ms), ("consumer", consumer))
            if value is not None
        }
        with self.telemetry.operation("receive", queue=queue):
            answer = await self._transport.send(
                "POST", "/api/v1/pop", body=body, timeout_s=wait_ms / 1000 + _POLL_MARGIN_S
            )
        self.telemetry.count_consumed(len(answer["messages"]), queue=queue)
        return [ReceivedMessage.of(message) for message in answer["messages"]]

    async def ack(self, message: ReceivedMessage) -> str:
        """The message is done. Returns the status: `acked`, or `queued` while the broker is away."""
        with self.telemetry.operation("ack", queue=message.queue):
            answer = await self._transport.send("POST", "/api/v1/ack", body=message.reference())
        return str(answer["status"])

    async def ack_many(self, messages: Sequence[ReceivedMessage]) -> list[str]:
        """Many at once; a status for each, in order: `acked`, `queued`, `lapsed` or `refused`."""
        statuses: list[str] = []
        for at in range(0, len(messages), MAX_BATCH):
            body = {"acknowledgments": [one.reference() for one in messages[at : at + MAX_BATCH]]}
            with self.telemetry.operation("ack"):
                answer = await self._transport.send("POST", "/api/v1/ack/batch", body=body)
            statuses += [str(item["status"]) for item in answer["items"]]
        return statuses

    async def nack(
        self,
        message: ReceivedMessage,
        *,
        error: str = "",
        delay_ms: int | None = None,
        dead_letter: bool = False,
    ) -> str:
        """The message failed: it is tried again, or given up with `dead_letter`."""
        body: dict[str, Any] = {**message.reference(), "dead_letter": dead_letter}
        if error:
            body["error"] = error
        if delay_ms is not None:
            body["delay_ms"] = delay_ms
        with self.telemetry.operation("nack", queue=message.queue):
            answer = await self._transport.send("POST", "/api/v1/nack", body=body)
        return str(answer["status"])

    async def extend(self, message: ReceivedMessage, *, lease_ms: int) -> ReceivedMessage:
        """Keep the lease for `lease_ms` more, counted from now."""
        body = {**message.reference(), "lease_ms": lease_ms}
        answer = await self._transport.send("POST", "/api/v1/extend", body=body)
        return replace(message, lease_until_ms=int(answer["lease_until_ms"]))

    # queued operations

    async def operation(self, operation_id: str) -> Operation:
        """A queued operation as it is now."""
        path = f"/api/v1/operations/{quote(operation_id, safe='')}"
        return Operation.of(await self._transport.send("GET", path))

    async def wait_for_operation(self, operation_id: str, *, timeout_s: float | None = None) -> Operation:
        """Poll until the operation has ended; raises if it failed, was cancelled or takes too long."""
        patience_s = self.options.poll_timeout_s if timeout_s is None else timeout_s
        give_up = time.monotonic() + patience_s
        while True:
            operation = await self.operation(operation_id)
            if operation.status == "completed":
                return operation
            if operation.ended:
                raise OperationFailed(operation_id, operation.status, operation.error_message)
            if time.monotonic() >= give_up:
                raise OperationTimeout(operation_id, patience_s)
            await asyncio.sleep(self.options.poll_interval_s)

    async def cancel_operation(self, operation_id: str) -> Operation:
        path = f"/api/v1/operations/{quote(operation_id, safe='')}/cancel"
        return Operation.of(await self._transport.send("POST", path))

    async def retry_operation(self, operation_id: str) -> Operation:
        path = f"/api/v1/operations/{quote(operation_id, safe='')}/retry"
        return Operation.of(await self._transport.send("POST", path))

    async def operation_stats(self) -> dict[str, Any]:
        return await self._transport.send("GET", "/api/v1/operations/stats")

    async def queue(self, name: str) -> dict[str, Any]:
        """A queue right now."""
        return await self._transport.send("GET", f"/api/v1/queues/{quote(name, safe='')}")


def _after(result: PushResult, operation: Operation) -> PushResult:
    """What became of a message whose operation has ended."""
    rows = (operation.result or {}).get("messages", [])
    status = next((row["status"] for row in rows if row["id"] == result.id), "accepted")
    return replace(result, status=str(status))
