"""A message inside a queue of the memory broker, its lease, and the forms in which it leaves the queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from weir.model.ids import MessageId
from weir.model.lives import LifeAttempt
from weir.model.message import DeadMessage, DeathReason, Delivery, LeaseRef, NewMessage
from weir.model.names import QueueRef
from weir.testing.memory_waits import MessagePhase


@dataclass(slots=True, kw_only=True)
class Lease:
    token: str
    consumer: str
    from_ms: int
    until_ms: int


@dataclass(slots=True, kw_only=True)
class WaitingEntry:
    """A message inside the queue. It waits while it has no lease, and is ready once it was placed."""

    message: NewMessage
    priority: int
    """The message's own, or the queue's when it came in."""
    enqueued_at_ms: int
    available_at_ms: int
    expires_at_ms: int
    sequence: int | None = None
    """Its place, given when it first becomes available."""
    attempts: int = 0
    ready: bool = False
    lease: Lease | None = None
    error: str = ""
    phases: list[tuple[int, MessagePhase]] = field(default_factory=list)
    """Its phases, each with the time since when."""
    past_attempts: list[LifeAttempt] = field(default_factory=list)
    first_available_at_ms: int = 0
    blocked_by_id: MessageId | None = None
    """The former head of its key, whose end made it the head."""


def delivery_of(queue: QueueRef, entry: WaitingEntry, lease: Lease, now: int) -> Delivery:
    """A message as it is handed out under a lease."""
    message = entry.message
    return Delivery(
        lease=LeaseRef(queue=queue, message_id=message.id, token=lease.token),
        payload=message.payload,
        headers=message.headers,
        key=message.key,
        priority=entry.priority,
        attempt=entry.attempts,
        enqueued_at_ms=entry.enqueued_at_ms,
        available_at_ms=entry.available_at_ms,
        lease_until_ms=lease.until_ms,
        wait_ms=max(0, now - entry.available_at_ms),
        idempotency_key=message.idempotency_key,
        last_error=(entry.error or None) if entry.attempts > 1 else None,
    )


def dead_message_of(
    queue: QueueRef, entry: WaitingEntry, reason: DeathReason, *, max_attempts: int, now: int
) -> DeadMessage:
    """A message as `take_dead` returns it after its death."""
    message = entry.message
    return DeadMessage(
        queue=queue,
        message_id=message.id,
        payload=message.payload,
        headers=message.headers,
        key=message.key,
        priority=entry.priority,
        idempotency_key=message.idempotency_key,
        attempts=entry.attempts,
        max_attempts=max_attempts,
        reason=reason,
        error=entry.error,
        enqueued_at_ms=entry.enqueued_at_ms,
        died_at_ms=now,
    )
