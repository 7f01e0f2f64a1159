"""The values of the client: messages, results and operations, all frozen.

Lists have thousands of messages and results, so these are structs of msgspec: making one takes 0.3 to 0.7 us,
where a frozen dataclass takes 1.1 to 1.8 us. That was a third of the client's time per message.
"""

from __future__ import annotations

import base64
from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from weir.client.encoding import decode
from weir.client.errors import ApiError
from weir.client.options import DEFAULTS
from weir.model.durations import Duration, to_ms
from weir.model.ids import new_id
from weir.model.message import key_reused
from weir.model.problem_documents import problem

Payload: TypeAlias = bytes | str | int | float | bool | Mapping[str, Any] | Sequence[Any] | None
"""Bytes, which are sent unchanged, or a value that is sent as JSON."""


class MadeKey(str):
    """An idempotency key that the client made, for nothing but its own retries."""

    __slots__ = ()


def make_key() -> MadeKey:
    return MadeKey(new_id())


PushStatus: TypeAlias = Literal["accepted", "duplicate", "queued", "refused"]
SettleStatus: TypeAlias = Literal["acked", "nacked", "dead", "queued", "lapsed", "refused"]
OperationStatus: TypeAlias = Literal["pending", "processing", "completed", "failed", "cancelled"]


class OutgoingMessage(Struct, frozen=True, kw_only=True):
    """A message for `push_many`; its fields are the arguments of `push`.

    Its idempotency key is made here unless it is given. The server remembers a key that was made for some
    minutes, as long as the client's retries may take. It remembers a key that you give for the queue's
    window, which is 24 hours by default.

    ```python
    weir.push_many([OutgoingMessage(queue="orders", payload={"order": n}) for n in range(3)])
    ```
    """

    queue: str
    payload: Payload
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    priority: int | None = None
    delay: Duration | None = None
    deliver_at: datetime | None = None
    ttl: Duration | None = None
    idempotency_key: str = field(default_factory=make_key)

    @property
    def has_made_key(self) -> bool:
        """Whether the client made its key, for nothing but its own retries."""
        return self.idempotency_key.__class__ is MadeKey

    def document(
        self, *, retry_window_ms: int = DEFAULTS.retry_window_ms, keyed: bool = True
    ) -> dict[str, Any]:
        """The item of a push request. If not `keyed`, it has no idempotency key."""
        item: dict[str, Any] = {"queue": self.queue}
        if keyed:
            item["idempotency_key"] = self.idempotency_key
            if self.has_made_key:
                item["idempotency_window_ms"] = retry_window_ms
        if isinstance(self.payload, bytes | bytearray | memoryview):
            item["payload_base64"] = base64.b64encode(self.payload).decode()
        else:
            item["payload"] = self.payload
        if self.key is not None:
            item["key"] = self.key
        if self.headers:
            item["headers"] = dict(self.headers)
        if self.priority is not None:
            item["priority"] = self.priority
        if self.delay is not None:
            item["delay_ms"] = to_ms(self.delay)
        if self.deliver_at is not None:
            item["deliver_at_ms"] = unix_ms(self.deliver_at)
        if self.ttl is not None:
            item["ttl_ms"] = to_ms(self.ttl)
        return item


class PushResult(Struct, frozen=True, kw_only=True):
    """The result of pushing one message.

    - `accepted`: it is in the queue.
    - `duplicate`: the queue already had a message with this idempotency key.
    - `queued`: the server is busy and has stored the operation `operation_id`, which pushes it later. The
      result of that operation has the message's `id`, which is None until then.
    - `refused`: `problem` says why.

    ```python
    result = weir.push("orders", {"order": 42})
    print(result.status, result.id)
    ```
    """

    status: PushStatus
    id: str | None = None
    operation_id: str | None = None
    position: int | None = None
    estimated_wait: timedelta | None = None
    reason: str | None = None
    problem: Mapping[str, Any] | None = None

    @property
    def queued(self) -> bool:
        return self.status == "queued"

    @property
    def accepted(self) -> bool:
        """Whether the message is in the queue or will be."""
        return self.status != "refused"

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> PushResult:
        """The result that an item of the answer describes."""
        if len(document) == 2 and "id" in document:
            return cls(status=document["status"], id=document["id"])
        wait_ms = document.get("estimated_wait_ms")
        return cls(
            status=document["status"],
            id=document.get("id"),
            operation_id=document.get("operation_id"),
            position=document.get("position"),
            estimated_wait=None if wait_ms is None else timedelta(milliseconds=wait_ms),
            reason=document.get("reason"),
            problem=document.get("problem"),
        )


class ReceivedMessage(Struct, frozen=True, kw_only=True):
    """A message under a lease. `payload` has the bytes that were sent; `json` is their value.

    ```python
    for message in weir.pop("orders"):
        print(message.id, message.payload, message.json["order"])
        weir.ack(message)
    ```
    """

    id: str
    queue: str
    lease: str
    """The proof that the message was handed out to you. It is needed to settle the message."""
    payload: bytes
    headers: Mapping[str, str]
    key: str | None
    priority: int
    attempt: int
    """1 on the first delivery."""
    enqueued_at: datetime
    lease_until: datetime
    wait: timedelta
    """How long the message waited after it became available."""
    idempotency_key: str | None
    last_error: str | None
    """How the attempt before this one failed."""

    @property
    def json(self) -> Any:
        """The value of a JSON payload; raises ValueError for any other."""
        return decode(self.payload)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ReceivedMessage:
        """The message that an answer describes, with its payload in base64."""
        return cls(
            id=document["id"],
            queue=document["queue"],
            lease=document["lease"],
            payload=a2b_base64(document["payload_base64"]),
            headers=document["headers"],
            key=document["key"],
            priority=document["priority"],
            attempt=document["attempt"],
            enqueued_at=time_of(document["enqueued_at_ms"]),
            lease_until=time_of(document["lease_until_ms"]),
            wait=span_of(document["wait_ms"]),
            idempotency_key=document.get("idempotency_key"),
            last_error=document["last_error"],
        )

    def reference(self) -> dict[str, str]:
        """The names of the lease for a request."""
        return {"queue": self.queue, "id": self.id, "lease": self.lease}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A queued operation at the moment of the answer.

    ```python
    operation = await weir.operation(operation_id)
    print(operation.status, operation.queue_position, operation.estimated_wait)
    ```
    """

    id: str
    status: OperationStatus
    operation_type: str
    queue: str
    retry_count: int
    error_message: str | None
    result: Mapping[str, Any] | None
    latency: timedelta
    """From its arrival to its end, or until now."""
    queue_position: int | None = None
    estimated_wait: timedelta | None = None

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Operation:
        """The operation that an answer describes."""
        wait_ms = document.get("estimated_wait_ms")
        return cls(
            id=document["id"],
            status=document["status"],
            operation_type=document["operation_type"],
            queue=document["queue"],
            retry_count=document["retry_count"],
            error_message=document["error_message"],
            result=document["result"],
            latency=timedelta(seconds=document["latency_seconds"]),
            queue_position=document.get("queue_position"),
            estimated_wait=None if wait_ms is None else timedelta(milliseconds=wait_ms),
        )


# Messages that were pushed or popped together have the same times. Making all three times anew for each
# message took a quarter of the client's time per popped message.
@lru_cache(maxsize=1_024)
def time_of(at_ms: int) -> datetime:
    """A time of the server, in UTC."""
    return datetime.fromtimestamp(at_ms / 1_000, tz=UTC)


@lru_cache(maxsize=1_024)
def span_of(took_ms: int) -> timedelta:
    """A length of time in an answer of the server."""
    return timedelta(milliseconds=took_ms)


def unix_ms(moment: datetime, *, what: str = "deliver_at") -> int:
    """A time as the server takes it; ValueError if it has no zone."""
    if moment.tzinfo is None:
        raise ValueError(f"`{what}` is {moment!r}, a time without a zone; give it one, such as UTC")
    return round(moment.timestamp() * 1_000)


def raise_refused(result: PushResult) -> PushResult:
    """The result, if the message was not refused; ApiError if it was."""
    if result.problem is not None:
        raise ApiError(int(result.problem.get("status", 0)), result.problem)
    return result


def after_operation(result: PushResult, operation: Operation, *, key: str) -> PushResult:
    """The result of a message whose operation has ended. Only the operation knows the message's id."""
    for row in (operation.result or {}).get("messages", []):
        # An older server tells the id in its first answer, and has no keys in the operation's result.
        if key == row.get("idempotency_key") or row["id"] == result.id:
            reused = row["status"] == "key_reused"
            return replace(
                result,
                status="refused" if reused else row["status"],
                id=None if reused else row["id"],
                problem=_KEY_REUSED if reused else None,
            )
    return replace(result, status="accepted")


_KEY_REUSED = problem(key_reused())
