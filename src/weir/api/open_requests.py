"""Long polls and streams that are open now: they end when their token does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field

import structlog

from weir.control.authentication import Authenticator
from weir.errors import Unauthenticated, WeirError

log = structlog.get_logger("weir.api")
# PostgreSQL is asked about this many tokens at once.
_AT_ONCE = 16


@dataclass(slots=True)
class _Watched:
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    requests: int = 0


class OpenRequests:
    """Asks again and again whether the tokens of open requests still hold, once per token."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many tokens have open requests."""
        return len(self._watched)

    @contextmanager
    def watching(self, authenticator: Authenticator, token: str) -> Iterator[asyncio.Event]:
        """An event that is set when the token is revoked or expires, while the block runs."""
        watched = self._watched.setdefault(token, _Watched())
        watched.requests += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(authenticator), name="open-requests")
        try:
            yield watched.ended
        finally:
            watched.requests -= 1
            if not watched.requests and self._watched.get(token) is watched:
                del self._watched[token]
            if not self._watched and self._task is not None:
                self._task.cancel()
                self._task = None

    async def until_ended(
        self, authenticator: Authenticator, token: str, events: AsyncGenerator[bytes]
    ) -> AsyncGenerator[bytes]:
        """The events of a stream until its token ends. Streams say something every few seconds."""
        with self.watching(authenticator, token) as ended:
            async with aclosing(events):
                async for event in events:
                    if ended.is_set():
                        return
                    yield event

    async def _run(self, authenticator: Authenticator) -> None:
        while True:
            await asyncio.sleep(authenticator.look_again_s)
            tokens = list(self._watched)
            for first in range(0, len(tokens), _AT_ONCE):
                asked = tokens[first : first + _AT_ONCE]
                await asyncio.gather(*(self._look(authenticator, token) for token in asked))

    async def _look(self, authenticator: Authenticator, token: str) -> None:
        try:
            await authenticator.authenticate_again(token)
        except Unauthenticated:
            watched = self._watched.pop(token, None)
            if watched is not None:
                watched.ended.set()
        except WeirError:
            # PostgreSQL is away: what is open goes on, as tokens that are known do.
            return
        except Exception:
            log.exception("the token of an open request could not be looked at")
