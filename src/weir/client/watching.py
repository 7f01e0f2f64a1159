"""Follows a message to its end over server-sent events, across connections that break."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from weir.client.errors import ApiError, Unreachable
from weir.client.http1 import HttpAnswer
from weir.client.httpx_connections import is_of_the_network
from weir.client.options import ClientOptions
from weir.client.outcomes import MessageOutcome
from weir.client.retry import pause_s, retry_after_s, worth_retrying
from weir.client.transport import common_headers, refusal

# The server sends something at least every 5 s, so a stream that is silent for this long is broken.
SILENT_S = 20.0
_PREFIX = "data: "


class OutcomeStream:
    """The outcomes of one message, from now to its end or until the time is up."""

    def __init__(self, options: ClientOptions, http: Any, path: str, *, timeout_s: float) -> None:
        self._options = options
        self._http = http
        self._path = path
        self._give_up = time.monotonic() + timeout_s
        self._failures = 0
        self._broke: ApiError | Unreachable | None = None
        """Why the last stream broke, if that is known."""
        self._asked_s: float | None = None
        """The pause that the server asked for."""

    async def outcomes(self) -> AsyncGenerator[MessageOutcome, None]:
        """Each outcome once. A stream that breaks is opened again, at the next base URL."""
        told: MessageOutcome | None = None
        while True:
            async with aclosing(self._events()) as events:
                while (outcome := await self._next(events)) is not None:
                    self._failures = 0
                    if outcome != told:
                        yield outcome
                    if outcome.ended:
                        return
                    told = outcome
            if self._left_s() <= 0:
                return
            await self._pause()

    async def _next(self, events: AsyncIterator[MessageOutcome]) -> MessageOutcome | None:
        """The next outcome of a connection; None if it broke, or the time is up."""
        try:
            return await asyncio.wait_for(anext(events), self._left_s())
        except (StopAsyncIteration, TimeoutError):
            return None

    async def _events(self) -> AsyncGenerator[MessageOutcome, None]:
        """The events of one connection, until it breaks."""
        self._broke, self._asked_s = None, None
        try:
            async with self._http.stream(
                "GET", self._base_url + self._path, headers=common_headers(self._options), timeout=SILENT_S
            ) as response:
                if response.status_code != 200:
                    await self._note_refusal(response)
                    return
                async for line in response.aiter_lines():
                    if line.startswith(_PREFIX):
                        yield MessageOutcome.of(json.loads(line[len(_PREFIX) :]))
        except Exception as error:
            if not is_of_the_network(error):
                raise
            self._broke = self._unreachable(str(error) or type(error).__name__)

    async def _note_refusal(self, response: Any) -> None:
        """Raise the refusal of the server, unless another try may help."""
        body = await response.aread()
        answer = HttpAnswer(status=response.status_code, headers=response.headers, body=body)
        self._asked_s = retry_after_s(answer.headers)
        self._broke = refusal(answer, self._asked_s)
        if not worth_retrying(answer.status, self._options):
            raise self._broke

    async def _pause(self) -> None:
        """Wait before the next try; raise after the last."""
        broke = self._broke or self._unreachable("it closed the stream")
        self._failures += 1
        if self._failures >= self._options.retry_attempts:
            raise broke
        wanted_s = pause_s(self._failures, self._options, asked_s=self._asked_s)
        await asyncio.sleep(max(0.0, min(wanted_s, self._left_s())))

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(f"`{self._base_url}` does not answer: {why}")

    @property
    def _base_url(self) -> str:
        return self._options.base_urls[self._failures % len(self._options.base_urls)]

    def _left_s(self) -> float:
        return self._give_up - time.monotonic()
