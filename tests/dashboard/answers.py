"""Answers of the API that come late, or that say what a test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Page, Route

QUEUE = {
    "delayed": 0,
    "running": 0,
    "limit": None,
    "utilization_pct": None,
    "oldest_age_ms": 0,
    "paused": False,
}


class Held:
    """The answer to a request, which waits until the test lets it go."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._go = asyncio.Event()
        self._done = asyncio.Event()

    async def arrived(self) -> None:
        async with asyncio.timeout(20):
            await self._asked.wait()

    async def release(self) -> None:
        self._go.set()
        async with asyncio.timeout(20):
            await self._done.wait()

    async def __call__(self, route: Route) -> None:
        self._asked.set()
        await self._go.wait()
        await route.continue_()
        self._done.set()


@asynccontextmanager
async def held(page: Page, pattern: str) -> AsyncIterator[Held]:
    """Hold the answers to these requests until `release`."""
    held = Held()
    await page.route(pattern, held)
    yield held
    await page.unroute(pattern, held)


def live_stream(*queues: dict[str, Any]) -> Callable[[Route], Awaitable[None]]:
    """The stream of an environment with these queues."""
    data = json.dumps({"changed": [{**QUEUE, **queue} for queue in queues], "removed": []})

    async def answer(route: Route) -> None:
        await route.fulfill(content_type="text/event-stream", body=f"event: snapshot\ndata: {data}\n\n")

    return answer
