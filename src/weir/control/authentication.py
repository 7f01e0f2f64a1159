"""Turns the text of a token into its principal, almost always from a cache.

A cached record is used for `fresh_s`. While PostgreSQL does not answer it is used for `stale_s`, so that
neither an outage nor a hanging server stops traffic. One request with a known token waits for PostgreSQL, for
`_REFRESH_S`. After that PostgreSQL is asked every `_AWAY_S` in the background, and no request waits for it.
While PostgreSQL answers, a revocation takes effect within `fresh_s` everywhere, also for requests that are
open, and at once in the process that made it.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from weir.control.principals import Principal
from weir.control.token_texts import TokenText, parse
from weir.control.tokens import Token, Tokens
from weir.errors import ControlUnavailable, Overloaded, Unauthenticated
from weir.model.clock import Clock, SystemClock

# Per cache. Ids that do not exist have a cache of their own: anyone can make them up, and they must not push
# real tokens out.
_MAX_ENTRIES = 10_000
# Look-ups of uncached tokens at once. Anyone can send such tokens, and everyone shares the connections.
_LOOKUPS = 4
# Look-ups that run or wait. While there are this many, requests with uncached tokens are refused.
_MAX_WAITING = 1_000
# How often a silent PostgreSQL is asked again.
_AWAY_S = 5.0
# How long a request with a known token waits for news about it: PostgreSQL may hang, and the hot path must
# not.
_REFRESH_S = 0.5
# The tokens of open requests are not looked at more often than this, however short records are fresh.
_LOOK_AGAIN_S = 0.25


class Authenticator(Protocol):
    """Turns a credential into a principal, or refuses it."""

    look_again_s: float
    """How often to ask about the token of a request that stays open."""

    async def authenticate(self, text: str) -> Principal: ...

    async def authenticate_again(self, text: str) -> Principal:
        """The same for a request that stays open, with facts that are newer."""

    def recall(self, text: str) -> tuple[Principal, bool] | None:
        """The cached principal, and whether it is fresh enough to skip `authenticate`; None if not cached."""

    def forget(self, token_id: str) -> None:
        """Drop the cached record of a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """The facts about a token that a check needs; the principal is None if there is no such token."""

    principal: Principal | None
    # An unknown id is compared too, so that the time of the answer does not tell whether an id exists.
    secret_sha256: bytes = bytes(32)
    ends_at_ms: float = 0
    read_at_s: float


class CachedAuthenticator:
    """Authenticates against the token register through a cache."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        fresh_s: float = 15,
        stale_s: float = 600,
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._fresh_s = fresh_s
        self._stale_s = stale_s
        self._clock = clock or SystemClock()
        self._monotonic = monotonic
        self._entries: dict[str, _Entry] = {}
        self._unknown: dict[str, _Entry] = {}
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self._seen: dict[str, int] = {}
        self._reading: dict[str, asyncio.Task[_Entry]] = {}
        # A stream hears of it up to 5 s later, with its next event; all of it must take less than `fresh_s`.
        self._again_s = fresh_s / 4
        self.look_again_s = max(fresh_s / 8, _LOOK_AGAIN_S)
        self._ask_again_s: float | None = None
        """When PostgreSQL is asked again; None while it answers."""

    async def authenticate(self, text: str) -> Principal:
        return await self._authenticate(text, fresh_s=self._fresh_s)

    async def authenticate_again(self, text: str) -> Principal:
        return await self._authenticate(text, fresh_s=self._again_s)

    async def _authenticate(self, text: str, *, fresh_s: float) -> Principal:
        parts = parse(text)
        if parts is None:
            raise _refusal()
        entry = self._entries.get(parts.id) or self._unknown.get(parts.id)
        if entry is None or self._monotonic() - entry.read_at_s >= fresh_s:
            entry = await self._read(parts.id, entry)
        return self._check(entry, parts)

    def recall(self, text: str) -> tuple[Principal, bool] | None:
        parts = parse(text)
        entry = self._entries.get(parts.id) if parts is not None else None
        if parts is None or entry is None:
            return None
        age_s = self._monotonic() - entry.read_at_s
        if age_s >= max(self._fresh_s, self._stale_s):
            return None
        try:
            return self._check(entry, parts), age_s < self._fresh_s
        except Unauthenticated:
            return None

    def forget(self, token_id: str) -> None:
        """Drop the cached record, so that the next use of this token asks PostgreSQL."""
        self._entries.pop(token_id, None)
        self._unknown.pop(token_id, None)
        self._reading.pop(token_id, None)

    async def flush_last_used(self) -> None:
        """Store when each token was last used since the last flush."""
        seen, self._seen = self._seen, {}
        if not seen:
            return
        try:
            await self._tokens.touch(seen)
        except ControlUnavailable:
            self._seen = seen | self._seen

    async def run(self, *, every_s: float = 30) -> None:
        """Flush for ever."""
        while True:
            await asyncio.sleep(every_s)
            await self.flush_last_used()

    async def _read(self, token_id: str, known: _Entry | None) -> _Entry:
        """Read the record from PostgreSQL, once for all requests that wait for it. While PostgreSQL is
        silent, use `known`."""
        if known is None or self._monotonic() - known.read_at_s >= self._stale_s:
            return await self._read_unknown(token_id)
        if self._ask_again_s is None:
            try:
                async with asyncio.timeout(_REFRESH_S):
                    return await asyncio.shield(self._share_read(token_id))
            except (ControlUnavailable, TimeoutError):
                self._ask_again_s = self._monotonic() + _AWAY_S
        elif self._monotonic() >= self._ask_again_s:
            self._share_read(token_id)
        return known

    async def _read_unknown(self, token_id: str) -> _Entry:
        self._check_silence()
        return await asyncio.shield(self._share_read(token_id))

    def _check_silence(self) -> None:
        if self._ask_again_s is not None and self._monotonic() < self._ask_again_s:
            raise ControlUnavailable("PostgreSQL does not answer; try again", retry_after_s=_AWAY_S)

    def _share_read(self, token_id: str) -> asyncio.Task[_Entry]:
        reading = self._reading.get(token_id)
        if reading is None:
            if len(self._reading) >= _MAX_WAITING and token_id not in self._entries:
                raise Overloaded("too many unknown tokens are being looked up; try again", retry_after_s=1)
            reading = asyncio.create_task(self._find(token_id))
            self._reading[token_id] = reading
            reading.add_done_callback(partial(self._end_read, token_id))
        return reading

    def _end_read(self, token_id: str, reading: asyncio.Task[_Entry]) -> None:
        if self._reading.get(token_id) is reading:
            del self._reading[token_id]
        if reading.cancelled():
            return
        # Reading the exception marks it as retrieved. Otherwise asyncio would report it as lost when every
        # request that waited for it has gone.
        silent = isinstance(reading.exception(), ControlUnavailable)
        self._ask_again_s = self._monotonic() + _AWAY_S if silent else None

    async def _find(self, token_id: str) -> _Entry:
        if token_id in self._entries:
            return self._remember(token_id, await self._tokens.find(token_id))
        async with self._lookups:
            self._check_silence()
            return self._remember(token_id, await self._tokens.find(token_id))

    def _remember(self, token_id: str, token: Token | None) -> _Entry:
        entry = _entry(token, read_at_s=self._monotonic())
        self._entries.pop(token_id, None)
        self._unknown.pop(token_id, None)
        entries = self._unknown if token is None else self._entries
        if len(entries) >= _MAX_ENTRIES:
            entries.pop(next(iter(entries)))
        entries[token_id] = entry
        return entry

    def _check(self, entry: _Entry, parts: TokenText) -> Principal:
        now_ms = self._clock.now_ms()
        matches = hmac.compare_digest(entry.secret_sha256, parts.digest)
        if entry.principal is None or not matches or now_ms >= entry.ends_at_ms:
            raise _refusal()
        self._seen[parts.id] = now_ms
        return entry.principal


def _entry(token: Token | None, *, read_at_s: float) -> _Entry:
    if token is None:
        return _Entry(principal=None, read_at_s=read_at_s)
    return _Entry(
        principal=token.principal,
        secret_sha256=token.secret_sha256,
        ends_at_ms=token.ends_at_ms,
        read_at_s=read_at_s,
    )


def _refusal() -> Unauthenticated:
    return Unauthenticated("the token is missing or not valid; send `Authorization: Bearer weir_…`")
