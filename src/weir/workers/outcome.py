"""The outcome of one attempt at a message."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Ending(StrEnum):
    DONE = "done"
    FAILED = "failed"
    """It is tried again by the queue's delivery policy."""
    REJECTED = "rejected"
    """It goes to the dead letters without another attempt."""
    LOST = "lost"
    """The lease was lost while the handler ran; another consumer may have the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOutcome:
    """The end of an attempt, its error or result, and when its handler ran."""

    ending: Ending
    error: str = ""
    delay_ms: int | None = None
    result: Any = None
    started_at_ms: int = 0
    """When the handler began. The message may have been fetched long before a slot was free."""
    finished_at_ms: int = 0
    """When the handler ended. The message is settled later."""


def failed(error: str, *, delay_ms: int | None = None) -> HandlerOutcome:
    return HandlerOutcome(ending=Ending.FAILED, error=error, delay_ms=delay_ms)


def rejected(error: str) -> HandlerOutcome:
    return HandlerOutcome(ending=Ending.REJECTED, error=error)


def done(result: Any = None) -> HandlerOutcome:
    return HandlerOutcome(ending=Ending.DONE, result=result)
