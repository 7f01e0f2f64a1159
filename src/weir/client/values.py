"""What goes in and what comes out, as frozen values."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weir.model.ids import new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message to push. Its idempotency key is made here, so that any retry is safe."""

    queue: str
    payload: Any
    """Bytes go as they are; anything else goes as JSON."""
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    priority: int | None = None
    deliver_at_ms: int | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    idempotency_key: str = field(default_factory=new_id)

    def document(self) -> dict[str, Any]:
        """The item of a push request."""
        item: dict[str, Any] = {"queue": self.queue, "idempotency_key": self.idempotency_key}
        if isinstance(self.payload, bytes):
            item["payload_base64"] = base64.b64encode(self.payload).decode()
        else:
            item["payload"] = self.payload
        if self.headers:
            item["headers"] = dict(self.headers)
        for name in ("key", "priority", "deliver_at_ms", "delay_ms", "ttl_ms"):
            if (value := getattr(self, name)) is not None:
                item[name] = value
        return item


@dataclass(frozen=True, slots=True, kw_only=True)
class PushResult:
    """What became of one message: accepted, duplicate, queued or refused."""

    status: str
    id: str | None = None
    operation_id: str | None = None
    position: int | None = None
    estimated_wait_ms: int | None = None
    reason: str | None = None
    problem: Mapping[str, Any] | None = None

    @property
    def queued(self) -> bool:
        return self.status == "queued"

    @property
    def accepted(self) -> bool:
        """In the queue, or certain to be."""
        return self.status != "refused"

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> PushResult:
        return cls(**{name: document[name] for name in cls.__slots__ if name in document})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A message under a lease."""

    id: str
    queue: str
    lease: str
    body: bytes
    headers: Mapping[str, str]
    key: str | None
    priority: int
    attempt: int
    enqueued_at_ms: int
    lease_until_ms: int
    wait_ms: int
    last_error: str | None

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ReceivedMessage:
        if "payload_base64" in document:
            body = base64.b64decode(document["payload_base64"])
        else:
            body = json.dumps(document["payload"], ensure_ascii=False, separators=(",", ":")).encode()
        names = [name for name in cls.__slots__ if name != "body"]
        return cls(body=body, **{name: document[name] for name in names})

    def reference(self) -> dict[str, str]:
        """What names the lease in a request."""
        return {"queue": self.queue, "id": self.id, "lease": self.lease}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A queued operation, as the server sees it now."""

    id: str
    status: str
    operation_type: str
    queue: str
    retry_count: int
    error_message: str | None
    result: Mapping[str, Any] | None
    latency_seconds: float
    queue_position: int | None = None
    estimated_wait_ms: int | None = None

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Operation:
        return cls(**{name: document[name] for name in cls.__slots__ if name in document})
