"""Waiting for a condition, not for a time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any


async def until(condition: Callable[[], Any], *, within_s: float = 20.0) -> Any:
    """Wait until the answer of `condition` is true, and return it; it may be a coroutine function."""
    async with asyncio.timeout(within_s):
        while True:
            answer = condition()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(0.01)


def wait_until(
    condition: Callable[[], object], *, timeout_s: float = 10.0, what: str = "the condition"
) -> None:
    """The same without an event loop."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {timeout_s:.0f} s")
        time.sleep(0.02)
