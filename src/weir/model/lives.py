"""The type of a life: what became of a message from its acceptance to its end, written down when it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from weir.model.ids import MessageId
from weir.model.inspection import WaitParts
from weir.model.message import DeathReason
from weir.model.names import QueueRef

MAX_LIFE_ATTEMPTS = 20
"""A life keeps at most this many attempts: the last ones."""


class LifeOutcome(StrEnum):
    """How a message ended."""

    ACKED = "acked"
    DEAD = "dead"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class AttemptEnd(StrEnum):
    """How an attempt ended."""

    ACKED = "acked"
    FAILED = "failed"
    """Its handler failed, and the message was tried again or died of it."""
    REJECTED = "rejected"
    """The message was given up at once, whatever attempts were left."""
    LAPSED = "lapsed"
    """Nobody settled it in time: its worker was killed, hung, or could not reach the broker."""
    CANCELLED = "cancelled"
    """Somebody cancelled the message during the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeAttempt:
    """One attempt of a message that ended."""

    started_at_ms: int
    ended_at_ms: int
    end: AttemptEnd
    consumer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A message that ended."""

    queue: QueueRef
    message_id: MessageId
    key: str | None
    outcome: LifeOutcome
    reason: DeathReason | None
    """Why it died or expired; None if it was acked or cancelled."""
    enqueued_at_ms: int
    available_at_ms: int
    """When it was first due, as it was put in."""
    handed_out_at_ms: int | None
    """When its last attempt began; None if it was never handed out."""
    ended_at_ms: int
    priority: int
    attempts: int
    """How often it was handed out."""
    last_attempts: tuple[LifeAttempt, ...]
    """The last `MAX_LIFE_ATTEMPTS` attempts, in their order."""
    handler_ms: int | None
    """How long the handler of the last attempt ran, as its worker measured it; None if nobody did."""
    leased_ms: int
    """For how long it was leased, in all attempts."""
    parts: WaitParts
    """The parts of its wait until its last attempt began, or until its end if it ended while it waited."""
    blocked_by_id: MessageId | None
    """The message whose end made it the head of its key; None if it never waited behind one."""
    payload_bytes: int

    @property
    def consumer(self) -> str | None:
        """The consumer of its last attempt."""
        return self.last_attempts[-1].consumer if self.last_attempts else None
