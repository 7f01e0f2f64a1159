"""Places for requests on an event loop: how many of each kind are on their way at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from weir.client.http1 import ConnectionFailed, HttpAnswer, RequestKind

MAX_CONNECTIONS = 100
"""The most requests of one kind that are on their way at once. Further ones wait for a place."""
MAX_POLLS = 2_000
"""The most long polls. The server takes 10,000 from all clients together."""


class Places:
    """The places of one client. A client that goes on in another event loop gets new ones there."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._of_kind: dict[RequestKind, asyncio.Semaphore] = {}

    def enter_loop(self) -> bool:
        """Note which event loop runs; returns whether it is another one than before."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return False
        self._loop = loop
        self._of_kind = {
            kind: asyncio.Semaphore(MAX_POLLS if kind is RequestKind.POLL else MAX_CONNECTIONS)
            for kind in RequestKind
        }
        return True

    async def run(
        self, kind: RequestKind, exchange: Callable[[], Awaitable[HttpAnswer]], *, timeout_s: float
    ) -> HttpAnswer:
        """The answer of an exchange in a place of its kind; ConnectionFailed if it takes too long."""
        place = self._of_kind[kind]
        try:
            if kind is RequestKind.POLL:
                # Its time begins in its place: the polls in front of it wait long by design.
                async with place, asyncio.timeout(timeout_s):
                    return await exchange()
            async with asyncio.timeout(timeout_s), place:
                return await exchange()
        except TimeoutError:
            raise ConnectionFailed(f"no answer within {timeout_s:g} s") from None
