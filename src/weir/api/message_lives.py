"""Messages that ended, as their lives show them: the view, the timeline, and the parts of the wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from weir.api.schemas.messages import LifeAttemptView, LifeView, WaitPartView
from weir.model.inspection import WaitParts
from weir.model.lives import AttemptEnd, Life, LifeOutcome
from weir.model.wording import duration
from weir.workers.timeline import Moment, Timeline

_IN_WORDS = {
    "operation_queue": "in the operation queue",
    "scheduled": "before its time",
    "backoff": "before its next attempt",
    "blocked": "behind the head of its key",
    "paused": "paused",
    "queue_limit": "at the limit of its queue",
    "environment_limit": "at the limit of its environment",
    "unasked": "nobody asked",
    "turn": "in turn behind others",
    "unknown": "unknown",
}
"""The reasons of a wait in words, in their order: of several reasons that hold, the first one counts."""
STATES = {
    LifeOutcome.ACKED: "done",
    LifeOutcome.DEAD: "dead",
    LifeOutcome.EXPIRED: "dead",
    LifeOutcome.CANCELLED: "cancelled",
}
_LAST_WORDS = {
    LifeOutcome.ACKED: "done",
    LifeOutcome.DEAD: "died",
    LifeOutcome.EXPIRED: "expired",
    LifeOutcome.CANCELLED: "cancelled",
}
_LAPSED = f"attempt {AttemptEnd.LAPSED}"


def part_views(parts: WaitParts) -> Iterator[WaitPartView]:
    """The parts of a wait that are not 0."""
    for field in fields(parts):
        waited_ms = getattr(parts, field.name)
        if waited_ms:
            yield part_view(field.name.removesuffix("_ms"), waited_ms)


def part_view(reason: Any, waited_ms: int) -> WaitPartView:
    return WaitPartView(reason=reason, waited_ms=waited_ms, text=f"{_IN_WORDS[reason]} {duration(waited_ms)}")


def life_view(life: Life) -> LifeView:
    own = {"outcome", "reason", "last_attempts", "parts"}
    return LifeView(
        **{name: getattr(life, name) for name in set(LifeView.model_fields) - own},
        outcome=life.outcome.value,
        reason=None if life.reason is None else life.reason.value,
        last_attempts=[
            LifeAttemptView(
                attempt=number,
                started_at_ms=one.started_at_ms,
                ended_at_ms=one.ended_at_ms,
                end=one.end.value,
                consumer=one.consumer,
            )
            for number, one in _numbered(life)
        ],
        parts=list(part_views(life.parts)),
    )


def timeline_of_life(life: Life) -> Timeline:
    """The timeline of a message if only its life is known."""
    beginning = Moment(at_ms=life.enqueued_at_ms, what="enqueued", details={"queue": life.queue.queue})
    return Timeline(
        message_id=life.message_id,
        queue=life.queue.queue,
        state=STATES[life.outcome],
        moments=(beginning, *_attempt_moments(life), _end(life)),
    )


def with_lapses(timeline: Timeline, life: Life) -> Timeline:
    """The timeline, with the lapsed attempts and their times taken from the life."""
    known = [moment for moment in timeline.moments if moment.what != _LAPSED]
    lapses = [moment for moment in _attempt_moments(life) if moment.what == _LAPSED]
    moments = sorted([*known, *lapses], key=lambda moment: moment.at_ms) if lapses else timeline.moments
    return replace(timeline, queue=timeline.queue or life.queue.queue, moments=tuple(moments))


def ended_in_attempt(life: Life) -> bool:
    """Whether it ended while it was leased, and not while it waited."""
    return bool(life.last_attempts) and life.last_attempts[-1].ended_at_ms == life.ended_at_ms


def _numbered(life: Life) -> Iterator[tuple[int, Any]]:
    return enumerate(life.last_attempts, start=life.attempts - len(life.last_attempts) + 1)


def _attempt_moments(life: Life) -> Iterator[Moment]:
    for number, one in _numbered(life):
        about = {"attempt": number, "worker": one.consumer}
        took = {"took_ms": one.ended_at_ms - one.started_at_ms}
        yield Moment(at_ms=one.started_at_ms, what="attempt started", details=about)
        yield Moment(at_ms=one.ended_at_ms, what=f"attempt {one.end}", details={**about, **took})


def _end(life: Life) -> Moment:
    details = {} if life.reason is None else {"reason": life.reason.value}
    return Moment(at_ms=life.ended_at_ms, what=_LAST_WORDS[life.outcome], details=details)
