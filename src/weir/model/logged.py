"""A message in the log of its queue: its life, and what it carried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weir.errors import InvalidInput
from weir.model.limits import MAX_TIME_MS
from weir.model.lives import Life

_CURSOR_LENGTH = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedMessage:
    """A message that ended in a queue that keeps a log."""

    number: int
    """Its number among the lives of its queue, from 1 on, in the order of their ends. While a queue keeps a
    log no number is missing, unless a gap is recorded."""
    life: Life
    kept_ms: int
    """For how long the log keeps it after its end."""
    left_out: bool
    """Its payload and headers are not in the log, because the call that ended it ended too many bytes."""
    headers: Mapping[str, str]
    payload: bytes
    idempotency_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """A place in a log: right behind the message that ended then and has this number."""

    ended_at_ms: int
    number: int

    def __str__(self) -> str:
        return f"{self.ended_at_ms}-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAccount:
    """How many messages a span of a log holds, and how many numbers between them are missing."""

    messages: int
    missing: int


BEGINNING = LogPlace(ended_at_ms=0, number=0)


def place_of(message: LoggedMessage) -> LogPlace:
    return LogPlace(ended_at_ms=message.life.ended_at_ms, number=message.number)


def read_place(cursor: str | None) -> LogPlace:
    """The place that a cursor names; the beginning without one."""
    if cursor is None:
        return BEGINNING
    ended, _, number = cursor.partition("-")
    if not (ended.isdecimal() and number.isdecimal() and len(cursor) <= _CURSOR_LENGTH):
        raise InvalidInput(f"`{cursor:.40}` is not a cursor of a log; begin without one")
    return LogPlace(ended_at_ms=min(int(ended), MAX_TIME_MS), number=min(int(number), (1 << 63) - 1))
