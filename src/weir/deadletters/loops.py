"""The loops of this room: they go on at once while there is more to do, and back off after errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from weir.errors import WeirError
from weir.model.backoff import Backoff

log = structlog.get_logger(__name__)


async def repeat(
    step: Callable[[], Awaitable[object]], *, idle_s: float, longest_s: float | None = None, waits: str
) -> None:
    """Do a step for ever. Pause after a step that returns nothing: there is no more to do now.

    After an error the loop logs what has to wait (`waits`), and the pauses grow up to `longest_s`, if given.
    """
    backoff = Backoff(first_s=idle_s, longest_s=longest_s or idle_s)
    failures = 0
    while True:
        pause_s = idle_s
        try:
            done = await step()
            failures = 0
        except WeirError as error:
            done = None
            failures += 1
            pause_s = backoff.pause_s(failures)
            log.warning(f"{waits} wait", error=str(error), retry_in_s=pause_s)
        if not done:
            await asyncio.sleep(pause_s)
