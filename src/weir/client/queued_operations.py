"""The operations of a client that the server stored for later: asks about them and waits for their end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from weir.client.errors import OperationFailed, OperationTimeout
from weir.client.options import ClientOptions
from weir.client.transport import Transport
from weir.client.values import Operation, OutgoingMessage, PushResult, after_operation

_PATH = "/api/v1/operations"


class QueuedOperations:
    """Operations by their ids."""

    def __init__(self, transport: Transport, options: ClientOptions) -> None:
        self._transport = transport
        self._options = options

    async def find(self, operation_id: str) -> Operation:
        return Operation.of(await self._transport.send("GET", _path(operation_id), member="operation_type"))

    async def change(self, operation_id: str, verb: str) -> Operation:
        """Cancel an operation or try it again."""
        path = f"{_path(operation_id)}/{verb}"
        return Operation.of(await self._transport.send("POST", path, member="operation_type"))

    async def stats(self) -> dict[str, Any]:
        return await self._transport.send("GET", f"{_PATH}/stats")

    async def wait(self, operation_id: str, *, timeout_s: float | None = None) -> Operation:
        """Poll until an operation has ended, for the client's `poll_timeout` by default."""
        patience_s = self._options.poll_timeout_s if timeout_s is None else timeout_s
        give_up = time.monotonic() + patience_s
        while True:
            operation = await self.find(operation_id)
            if operation.status == "completed":
                return operation
            if operation.ended:
                raise OperationFailed(operation_id, operation.status, operation.error_message)
            if time.monotonic() >= give_up:
                raise OperationTimeout(operation_id, patience_s)
            await self._transport.sleep(self._options.poll_interval_s)

    async def wait_for_queued(
        self, messages: Sequence[OutgoingMessage], results: list[PushResult]
    ) -> list[PushResult]:
        """Wait for the operations of queued messages; the results then have their status and id."""
        waiting = {result.operation_id for result in results if result.operation_id is not None}
        ended = {one: await self.wait(one) for one in sorted(waiting)}
        return [
            after_operation(result, ended[result.operation_id], key=message.idempotency_key)
            if result.operation_id
            else result
            for message, result in zip(messages, results, strict=True)
        ]


def _path(operation_id: str) -> str:
    return f"{_PATH}/{quote(operation_id, safe='')}"
