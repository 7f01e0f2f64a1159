"""Pops and settlements of a client: over HTTP, or direct with the API behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec.structs import replace

from weir.client.encoding import encode
from weir.client.errors import ApiError
from weir.client.http1 import MAX_ANSWER_BYTES, RequestKind
from weir.client.sharing import LoneRequests, items_of
from weir.client.transport import Transport
from weir.client.values import Payload, ReceivedMessage, SettleStatus, time_of
from weir.model.limits import MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES
from weir.model.message import Verb

MAX_MESSAGE_BYTES = 2 * (MAX_PAYLOAD_BYTES + MAX_HEADER_BYTES)
"""The most bytes of a message in an answer. Its payload is in base64, and its headers may be escaped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleRequest:
    """How a message is settled, and what its consumer tells about it."""

    verb: Verb
    error: str = ""
    delay_ms: int | None = None
    uncounted: bool = False
    result: Payload = None
    """Kept with an ack."""
    handler_ms: int | None = None
    """How long the handler ran."""


class Deliveries(Protocol):
    """Takes messages and settles them."""

    async def pop(
        self, queue: str | None, *, limit: int, wait_ms: int, lease_ms: int | None, consumer: str | None
    ) -> list[ReceivedMessage]: ...

    async def settle(self, message: ReceivedMessage, request: SettleRequest) -> SettleStatus:
        """Settle one message; ApiError if its lease is lost."""

    async def ack_many(self, messages: Sequence[ReceivedMessage]) -> list[SettleStatus]:
        """Ack messages, at most as many as one call may carry."""

    async def extend(self, message: ReceivedMessage, *, lease_ms: int) -> ReceivedMessage:
        """Keep a message; ApiError if its lease is lost."""


class HttpDeliveries:
    """`Deliveries` through the API. `acks` lets the acks of one client share requests."""

    def __init__(self, transport: Transport, *, acks: LoneRequests, timeout_s: float) -> None:
        self._transport = transport
        self._acks = acks
        self._timeout_s = timeout_s

    async def pop(
        self, queue: str | None, *, limit: int, wait_ms: int, lease_ms: int | None, consumer: str | None
    ) -> list[ReceivedMessage]:
        # In base64 a payload keeps its bytes: a JSON parser changes numbers, and fails on deep nesting.
        body: dict[str, Any] = {"limit": limit, "wait_ms": wait_ms, "payload_encoding": "base64"}
        optional = {"queue": queue, "lease_ms": lease_ms, "consumer": consumer}
        body |= {name: value for name, value in optional.items() if value is not None}
        answer = await self._transport.send(
            "POST",
            "/api/v1/pop",
            body=body,
            timeout_s=wait_ms / 1_000 + self._timeout_s,
            most_bytes=MAX_ANSWER_BYTES + limit * MAX_MESSAGE_BYTES,
            kind=RequestKind.POLL if wait_ms else RequestKind.ORDINARY,
            member="messages",
        )
        return [ReceivedMessage.of(message) for message in answer["messages"]]

    async def settle(self, message: ReceivedMessage, request: SettleRequest) -> SettleStatus:
        item: dict[str, Any] = dict(message.reference())
        if request.handler_ms is not None:
            item["handler_ms"] = request.handler_ms
        if request.verb is Verb.ACK:
            if request.result is not None:
                item["result"] = request.result
            return _status(await self._acks.ask(encode(item)))
        item["dead_letter"] = request.verb is Verb.DEAD_LETTER
        if request.uncounted:
            item["uncounted"] = True
        if request.error:
            item["error"] = request.error
        if request.delay_ms is not None:
            item["delay_ms"] = request.delay_ms
        return _status(await self._send("/api/v1/nack", item, member="status"))

    async def ack_many(self, messages: Sequence[ReceivedMessage]) -> list[SettleStatus]:
        body = {"acknowledgments": [one.reference() for one in messages]}
        answer = await self._send("/api/v1/ack/batch", body, member="items")
        return [item["status"] for item in items_of(answer, len(messages))]

    async def extend(self, message: ReceivedMessage, *, lease_ms: int) -> ReceivedMessage:
        body = {**message.reference(), "lease_ms": lease_ms}
        answer = await self._send("/api/v1/extend", body, member="lease_until_ms")
        return replace(message, lease_until=time_of(answer["lease_until_ms"]))

    async def _send(self, path: str, body: Mapping[str, Any], *, member: str) -> dict[str, Any]:
        return await self._transport.send("POST", path, body=body, kind=RequestKind.LEASE, member=member)


def _status(answer: Mapping[str, Any]) -> SettleStatus:
    """The status of a settled message; ApiError if it could not be settled."""
    problem = answer.get("problem")
    if problem is not None:
        raise ApiError(int(problem.get("status", 0)), problem)
    status: SettleStatus = answer["status"]
    return status
