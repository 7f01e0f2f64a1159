"""The outcome of one attempt at a message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from weir.model.handling import NoRoom, Reject, Retry, describe_failure
from weir.model.wording import duration


class Ending(StrEnum):
    DONE = "done"
    FAILED = "failed"
    """The queue's delivery policy decides when the message is tried again, or whether it dies."""
    REJECTED = "rejected"
    """The message goes to the dead letters without another attempt."""
    WAITING = "waiting"
    """The handler ended, and the next queue is full. Only the passing on is tried again, by `pass_on`."""
    LOST = "lost"
    """The lease was lost while the handler ran; another consumer may have the message."""
    CANCELLED = "cancelled"
    """Somebody cancelled the message, so its lease was revoked. The message is not tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOutcome:
    """The end of an attempt, and its error or result."""

    ending: Ending
    error: str = ""
    delay_ms: int | None = None
    result: Any = None
    uncounted: bool = False
    """The message was not tried at all. It is tried again, however few attempts are left."""
    pass_on: Callable[[], Awaitable[HandlerOutcome]] | None = None
    """Of a waiting outcome: tries again to pass the message on, and returns the outcome then."""
    kept: bytes | None = None
    """The result of a task as JSON, to be kept in Redis with the ack."""


BUSY_DELAY_MS = 1_000
"""How long a message waits that was given back because a queue that its handler pushed to is full."""
UNKNOWN_DELAY_MS = 10_000
"""How long a message waits that this worker cannot run. Short, because a deploy may bring its handler; not
shorter, because each look costs a lease."""


PASS_ON_EVERY_S = 1.0
"""How often a message whose handler ended asks whether the next queue has room."""
MOST_WAITING = 100
"""A worker that holds as many messages for which a next queue has no room claims no more from their queue."""


def waiting(error: str, pass_on: Callable[[], Awaitable[HandlerOutcome]]) -> HandlerOutcome:
    """The outcome of a message whose next queue has no room."""
    return HandlerOutcome(ending=Ending.WAITING, error=error, pass_on=pass_on)


def failed(error: str, *, delay_ms: int | None = None) -> HandlerOutcome:
    return HandlerOutcome(ending=Ending.FAILED, error=error, delay_ms=delay_ms)


def given_back(error: str, *, delay_ms: int = 0) -> HandlerOutcome:
    """The outcome of a message that nothing began to work on."""
    return HandlerOutcome(ending=Ending.FAILED, error=error, delay_ms=delay_ms, uncounted=True)


def raised(error: BaseException) -> HandlerOutcome:
    """The outcome of a handler that raised."""
    match error:
        case Reject():
            return rejected(describe_failure(error))
        case Retry():
            return HandlerOutcome(
                ending=Ending.FAILED,
                error=describe_failure(error),
                delay_ms=error.delay_ms,
                uncounted=isinstance(error, NoRoom),
            )
        case asyncio.CancelledError():
            return failed("the handler was cancelled, and not by the worker")
    return failed(describe_failure(error))


def refused(outcome: HandlerOutcome, error: Exception) -> HandlerOutcome:
    """The outcome that takes the place of one that cannot be settled as it is."""
    told = f"the outcome of the handler cannot be settled ({describe_failure(error)})"
    return failed(f"{told}: {outcome.error}" if outcome.error else told)


def timed_out(timeout_ms: int | None) -> HandlerOutcome:
    return failed(f"the handler took longer than {duration(timeout_ms or 0)}")


def rejected(error: str) -> HandlerOutcome:
    return HandlerOutcome(ending=Ending.REJECTED, error=error)


def done(result: Any = None) -> HandlerOutcome:
    return _DONE if result is None else HandlerOutcome(ending=Ending.DONE, result=result)


_DONE = HandlerOutcome(ending=Ending.DONE)
LOST = HandlerOutcome(ending=Ending.LOST, error="the lease was lost")
CANCELLED = HandlerOutcome(ending=Ending.CANCELLED, error="the message was cancelled")
STOPPED = failed("the worker stopped", delay_ms=0)
"""The handler ran and was stopped. It may have had effects, so the attempt counts."""
NOT_PASSED_ON = given_back("the worker stopped while the next queue had no room")
NO_SLOT = given_back("no slot of the worker was free")
NEVER_BEGUN = given_back("the worker stopped")
