"""Where the calls of an app go: the API over HTTP, the stores of a worker, or memory in tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from weir.client.core import AsyncWeir
from weir.client.errors import ApiError, OperationTimeout
from weir.client.outcomes import MessageOutcome
from weir.client.values import OutgoingMessage, PushResult


class TaskBackend(Protocol):
    """The calls that handles and tasks make."""

    async def push_message(self, message: OutgoingMessage) -> PushResult: ...

    async def push_messages(self, messages: list[OutgoingMessage]) -> list[PushResult]: ...

    async def outcome(self, message_id: str, *, wait: float = 0) -> MessageOutcome: ...

    def watch(self, message_id: str, *, timeout: float) -> AsyncGenerator[MessageOutcome, None]:
        """Each change of a message, to its end or for `timeout` seconds."""

    async def cancel_message(self, message_id: str) -> bool: ...

    async def finish_member(self, group: str, *, member: int, of: int) -> bool:
        """Note that a member of a group is done; returns whether all members are."""

    async def id_of_queued(self, operation_id: str, *, key: str, wait: float) -> str | None:
        """The id of a message whose push was queued; None if it still is after `wait` seconds."""

    async def cancel_queued(self, operation_id: str) -> bool: ...


class HttpBackend:
    """Calls over HTTP, with a client that blocks or one that does not."""

    def __init__(self, weir: AsyncWeir) -> None:
        self._weir = weir

    async def push_message(self, message: OutgoingMessage) -> PushResult:
        return await self._weir.push(
            message.queue,
            message.payload,
            key=message.key,
            headers=message.headers,
            priority=message.priority,
            delay=message.delay,
            deliver_at=message.deliver_at,
            ttl=message.ttl,
            idempotency_key=message.idempotency_key,
        )

    async def push_messages(self, messages: list[OutgoingMessage]) -> list[PushResult]:
        return await self._weir.push_many(messages)

    async def outcome(self, message_id: str, *, wait: float = 0) -> MessageOutcome:
        return await self._weir.outcome(message_id, wait=wait)

    def watch(self, message_id: str, *, timeout: float) -> AsyncGenerator[MessageOutcome, None]:
        return self._weir.watch(message_id, timeout=timeout)

    async def cancel_message(self, message_id: str) -> bool:
        return await self._weir.cancel(message_id)

    async def id_of_queued(self, operation_id: str, *, key: str, wait: float) -> str | None:
        try:
            operation = await self._weir.wait_for_operation(operation_id, timeout=wait)
        except OperationTimeout:
            return None
        rows: list[dict[str, Any]] = (operation.result or {}).get("messages", [])
        return next((row["id"] for row in rows if row.get("idempotency_key") == key), None)

    async def finish_member(self, group: str, *, member: int, of: int) -> bool:
        return await self._weir.finish_member(group, member=member, of=of)

    async def cancel_queued(self, operation_id: str) -> bool:
        try:
            await self._weir.cancel_operation(operation_id)
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True
