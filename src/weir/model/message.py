"""The words for what waits, what was handed out, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from weir.model.ids import MessageId, new_message_id
from weir.model.names import QueueRef

DEFAULT_PRIORITY = 4
"""Of messages whose queue has no priority of its own either."""
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message on its way in. The payload is bytes and comes out as it went in."""

    payload: bytes
    id: MessageId = field(default_factory=new_message_id)
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    key: str | None = None
    """Ordering key of a `per_key` queue, and the partition of queued operations."""
    priority: int | None = None
    """0 to 9; 9 is served first. None is the priority of the queue. Orders `unordered` queues only."""
    deliver_at_ms: int | None = None
    """Not before this time, by the broker's clock."""
    delay_ms: int | None = None
    """Not before so long from when the broker takes it. Give this or `deliver_at_ms`."""
    ttl_ms: int | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRef:
    """Proof that a message was handed out: enough to settle it, useless once it lapsed."""

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
    """A leased message whose handler failed, with what is known about why."""

    lease: LeaseRef
    error: str = ""
    delay_ms: int | None = None
    """Overrides the queue's back-off, as Retry-After does; ignored by dead_letter."""


class Enqueue(StrEnum):
    """What became of one message of an enqueue call."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """Its idempotency key was seen within the window; `message_id` is the first one's."""
    KEY_REUSED = "key_reused"
    """Its idempotency key was seen with another payload."""
    FULL = "full"
    GATED = "gated"
    """Operations of its partition are queued ahead of it; it must queue behind them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    outcome: Enqueue
    message_id: MessageId


class Settlement(StrEnum):
    """What became of one lease of an ack, nack, extend or dead_letter call."""

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
    """The last attempt's lease lapsed: the worker died or hung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadMessage:
    """A message in the dead-letter outbox of its shard, until the mover has carried it off."""

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
    """A queue right now, from Redis alone."""

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
    """Whether somebody ever asked this very queue for messages, in vain or not."""
    odometers: Mapping[str, int]
    """Lifetime totals by counter name, as `telemetry.events.QUEUE` lists them."""
