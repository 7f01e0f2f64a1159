"""What became of one attempt at a message."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Ending(StrEnum):
    DONE = "done"
    FAILED = "failed"
    """Try again, as the queue's delivery policy says."""
    REJECTED = "rejected"
    """Never try again: to the dead letters."""
    LOST = "lost"
    """The lease was lost while the handler ran; somebody else has the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOutcome:
    """How an attempt ended, why, with what result, and when its handler ran."""

    ending: Ending
    error: str = ""
    delay_ms: int | None = None
    result: Any = None
    started_at_ms: int = 0
    """When the handler began: not when the message was fetched, which may be long before a slot was free."""
    finished_at_ms: int = 0
    """When the handler ended: not when the message was settled."""


def failed(error: str, *, delay_ms: int | None = None) -> HandlerOutcome:
    return HandlerOutcome(ending=Ending.FAILED, error=error, delay_ms=delay_ms)


def rejected(error: str) -> HandlerOutcome:
    return HandlerOutcome(ending=Ending.REJECTED, error=error)


def done(result: Any = None) -> HandlerOutcome:
    return HandlerOutcome(ending=Ending.DONE, result=result)
