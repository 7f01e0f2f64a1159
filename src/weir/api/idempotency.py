"""The `Idempotency-Key` header: the same request again gets the first one's answer.

The broker keeps the promise itself: it remembers every derived message key for its window (24 h unless the
queue says otherwise), across processes and restarts. This module adds more precise answers for as long as
one process remembers the request: the stored answer word for word, 422 for another body under the same key,
and 409 while the first request still runs. An answer that refuses a part of the request is not stored: the
reason may end.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from weir.api.wire import Reply
from weir.errors import InFlight, KeyReused
from weir.model.header_keys import key_in_header
from weir.model.names import EnvironmentRef

KEY_HEADER = "idempotency-key"
_MAX_STORED_BYTES = 16_384
"""A larger answer is not remembered. So 2,000 answers take at most 33 MB."""
_REPLAYED = ((b"idempotency-replayed", b"true"),)


def header_key(headers: Mapping[str, str]) -> str:
    """The key in the header of a request."""
    return key_in_header(headers[KEY_HEADER], header="Idempotency-Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    digest: bytes
    reply: Reply | None
    """None while the first request runs."""


class Idempotency:
    """The answers that this process remembers by key; it forgets the oldest first."""

    def __init__(self, *, capacity: int = 2_000) -> None:
        self._capacity = capacity
        self._seen: OrderedDict[tuple[EnvironmentRef, str, str], _Seen] = OrderedDict()

    async def run_once(
        self,
        *,
        environment: EnvironmentRef,
        route: str,
        key: str,
        body: bytes,
        first: Callable[[], Awaitable[tuple[Reply, bool]]],
    ) -> Reply:
        """Run `first`, which also says whether its answer is final, or repeat its answer.

        Keys of different tenants and routes are independent.
        """
        place = (environment, route, key)
        digest = hashlib.sha256(body).digest()
        seen = self._seen.get(place)
        if seen is not None:
            return _again(seen, digest)
        self._remember(place, _Seen(digest=digest, reply=None))
        try:
            reply, final = await first()
        except BaseException:
            self._seen.pop(place, None)
            raise
        if final and len(reply.body) <= _MAX_STORED_BYTES:
            self._remember(place, _Seen(digest=digest, reply=reply))
        else:
            self._seen.pop(place, None)
        return reply

    def _remember(self, place: tuple[EnvironmentRef, str, str], seen: _Seen) -> None:
        self._seen[place] = seen
        while len(self._seen) > self._capacity:
            self._seen.popitem(last=False)


def _again(seen: _Seen, digest: bytes) -> Reply:
    if seen.digest != digest:
        raise KeyReused("this `Idempotency-Key` was used with another body; use a new key")
    if seen.reply is None:
        raise InFlight("the first request with this `Idempotency-Key` still runs; ask again", retry_after_s=1)
    return replace(seen.reply, headers=(*seen.reply.headers, *_REPLAYED))
