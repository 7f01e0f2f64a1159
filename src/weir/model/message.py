"""The types of a message: new, handed out under a lease, settled and dead; and the state of a queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from weir.model.ids import MessageId, new_message_id
from weir.model.names import QueueRef

DEFAULT_PRIORITY = 4
"""The priority of messages if neither they nor their queue set one."""
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message on its way in. The payload is bytes, which consumers receive unchanged."""

    payload: bytes
    id: MessageId = field(default_factory=new_message_id)
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    key: str | None = None
    """Ordering key of a `per_key` queue, and the partition of queued operations."""
    priority: int | None = None
    """0 to 9; 9 is served first. None means the priority of the queue. Only `unordered` queues use it."""
    deliver_at_ms: int | None = None
    """The earliest time of delivery, by the broker's clock."""
    delay_ms: int | None = None
    """The least time between the broker's acceptance and delivery. Give this or `deliver_at_ms`."""
    ttl_ms: int | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRef:
    """Names one lease of a message: enough to settle it, and without effect once the lease lapsed."""

    queue: QueueRef
    message_id: MessageId
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message that was handed out under a lease."""

    lease: LeaseRef
    payload: bytes
    headers: Mapping[str, str]
    key: str | None
    priority: int
    attempt: int
    """1 on the first delivery."""
    enqueued_at_ms: int
    available_at_ms: int
    lease_until_ms: int
    wait_ms: int
    idempotency_key: str | None = None
    last_error: str | None = None

    @property
    def message_id(self) -> MessageId:
        return self.lease.message_id

    @property
    def queue(self) -> QueueRef:
        return self.lease.queue


class Verb(StrEnum):
    """The three ways to settle a lease."""

    ACK = "ack"
    NACK = "nack"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A leased message whose handler failed, with the error."""

    lease: LeaseRef
    error: str = ""
    delay_ms: int | None = None
    """Overrides the queue's back-off, as Retry-After does; ignored by dead_letter."""


class Enqueue(StrEnum):
    """The outcome of one message of an enqueue call."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """Its idempotency key was seen within the window; `message_id` is that of the first message."""
    KEY_REUSED = "key_reused"
    """Its idempotency key was seen with another payload."""
    FULL = "full"
    GATED = "gated"
    """Operations of its partition wait in the operation queue, so it must wait behind them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    outcome: Enqueue
    message_id: MessageId


class Settlement(StrEnum):
    """The outcome of one lease of an ack, nack, extend or dead_letter call."""

    DONE = "done"
    DEAD = "dead"
    """A nack that used up the last attempt; the message is on its way to the dead letters."""
    LAPSED = "lapsed"
    """The lease lapsed, was settled before, or belongs to someone else; nothing changed."""


class DeathReason(StrEnum):
    ATTEMPTS = "attempts"
    REJECTED = "rejected"
    EXPIRED = "expired"
    LAPSED = "lapsed"
    """The lease of the last attempt lapsed, because the worker died or hung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadMessage:
    """A dead message that is still in Redis, before the mover carries it to PostgreSQL."""

    queue: QueueRef
    message_id: MessageId
    payload: bytes
    headers: Mapping[str, str]
    key: str | None
    priority: int
    idempotency_key: str | None
    attempts: int
    max_attempts: int
    reason: DeathReason
    error: str
    enqueued_at_ms: int
    died_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The state of a queue right now, from Redis alone."""

    queue: QueueRef
    depth: int
    """Waiting messages: ready, delayed and waiting for a retry."""
    delayed: int
    running: int
    limit: int | None
    environment_depth: int
    environment_running: int
    environment_limit: int | None
    oldest_age_ms: int
    paused: bool
    popped: bool
    """Whether anybody ever asked this queue for messages, even without getting one."""
    odometers: Mapping[str, int]
    """Lifetime totals by counter name, as `telemetry.events.QUEUE` lists them."""
