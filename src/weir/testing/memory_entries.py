"""A message inside a queue of the memory broker, and the lease that it may be under."""

from __future__ import annotations

from dataclasses import dataclass, field

from weir.model.ids import MessageId
from weir.model.lives import LifeAttempt
from weir.model.message import NewMessage
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
    """What it did since when."""
    past_attempts: list[LifeAttempt] = field(default_factory=list)
    first_available_at_ms: int = 0
    blocked_by_id: MessageId | None = None
    """The former head of its key, whose end made it the head."""
