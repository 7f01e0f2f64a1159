"""The lives of messages in memory: what the Redis broker would append to its stream of lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weir.model.ids import MessageId
from weir.model.inspection import WaitParts
from weir.model.lives import MAX_LIFE_ATTEMPTS, AttemptEnd, Life, LifeAttempt, LifeOutcome
from weir.model.logged import LoggedMessage
from weir.model.message import DeathReason, NewMessage
from weir.model.names import QueueRef
from weir.testing.memory_entries import WaitingEntry
from weir.testing.memory_waits import MessagePhase

Split = Callable[[Sequence[tuple[int, MessagePhase]], int], tuple[WaitParts, int]]
"""Splits the phases of a message until a time into its parts, and tells for how long it was leased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedMessage:
    """A message as it was when it ended."""

    queue: QueueRef
    message: NewMessage
    outcome: LifeOutcome
    reason: DeathReason | None
    enqueued_at_ms: int
    first_available_at_ms: int
    ended_at_ms: int
    priority: int
    attempts: int
    past_attempts: tuple[LifeAttempt, ...]
    last_attempt: LifeAttempt | None
    """The attempt that it ended with; None if it ended while it waited."""
    handler_ms: int | None
    phases: tuple[tuple[int, MessagePhase], ...]
    blocked_by_id: MessageId | None


def take_logged(
    ended: list[EndedMessage], split: Split, *, before: int, log_ms: int | None
) -> list[LoggedMessage]:
    """Messages that ended, with their lives and numbers; the list is empty afterwards."""
    taken = [
        LoggedMessage(
            number=number,
            life=life_of(one, split),
            kept_ms=log_ms or 0,
            left_out=False,
            headers=one.message.headers,
            payload=one.message.payload,
            idempotency_key=one.message.idempotency_key,
        )
        for number, one in enumerate(ended, start=before + 1)
    ]
    ended.clear()
    return taken


def life_of(ended: EndedMessage, split: Split) -> Life:
    """The life of a message that ended."""
    last = ended.last_attempt
    known = (*ended.past_attempts, *((last,) if last else ()))[-MAX_LIFE_ATTEMPTS:]
    parts, leased_ms = split(ended.phases, last.started_at_ms if last else ended.ended_at_ms)
    return Life(
        queue=ended.queue,
        message_id=ended.message.id,
        key=ended.message.key,
        outcome=ended.outcome,
        reason=ended.reason,
        enqueued_at_ms=ended.enqueued_at_ms,
        available_at_ms=ended.first_available_at_ms,
        handed_out_at_ms=known[-1].started_at_ms if known else None,
        ended_at_ms=ended.ended_at_ms,
        priority=ended.priority,
        attempts=ended.attempts,
        last_attempts=known,
        handler_ms=ended.handler_ms,
        leased_ms=leased_ms + (max(0, last.ended_at_ms - last.started_at_ms) if last else 0),
        parts=parts,
        blocked_by_id=ended.blocked_by_id,
        payload_bytes=len(ended.message.payload),
    )


def keeps_life(history: int, message_id: MessageId) -> bool:
    """Whether the life of a message is kept if one in `history` is; the last digits of its id decide."""
    return history > 0 and int(message_id[-8:], 16) % history == 0


def attempts_now(entry: WaitingEntry, now: int, end: AttemptEnd) -> list[LifeAttempt]:
    """The attempt that ends now, if the message is leased; if nobody settled its lease until that was over,
    it ended with the lease."""
    lease = entry.lease
    if lease is None:
        return []
    over = end in (AttemptEnd.LAPSED, AttemptEnd.CANCELLED) and lease.until_ms <= now
    return [
        LifeAttempt(
            started_at_ms=lease.from_ms,
            # No earlier than it began, even if the clock went back.
            ended_at_ms=max(lease.from_ms, min(lease.until_ms, now) if over else now),
            end=AttemptEnd.LAPSED if over else end,
            consumer=lease.consumer,
        )
    ]


def ended_message(
    queue: QueueRef,
    entry: WaitingEntry,
    now: int,
    phases: Sequence[tuple[int, MessagePhase]],
    *,
    outcome: LifeOutcome,
    lease_end: AttemptEnd,
    handler_ms: int | None,
) -> EndedMessage:
    """A message that ends now, with the phases that it had."""
    return EndedMessage(
        queue=queue,
        message=entry.message,
        outcome=outcome,
        reason=None,
        enqueued_at_ms=entry.enqueued_at_ms,
        first_available_at_ms=entry.first_available_at_ms,
        ended_at_ms=now,
        priority=entry.priority,
        attempts=entry.attempts,
        past_attempts=tuple(entry.past_attempts),
        last_attempt=next(iter(attempts_now(entry, now, lease_end)), None),
        handler_ms=handler_ms,
        phases=tuple(phases),
        blocked_by_id=entry.blocked_by_id,
    )
