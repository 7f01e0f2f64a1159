"""Limits requests that are still arriving: their age, number and size, per client and in total.

A request that arrives in one read never comes here. The others are looked at every `TICK_S`. Their age is
counted in looks, not in seconds: between two looks the event loop reads the bytes that wait in its sockets,
so a client is never blamed for a time in which this process itself was blocked.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterable
from ipaddress import IPv6Address
from typing import Protocol

from weir.api.limits import Limits
from weir.api.problems import RequestTimeout
from weir.errors import Overloaded, WeirError

TICK_S = 0.25
ENDED_PER_LOOK = 64
"""Requests that one look ends; a quarter of the surplus if that is more. Clients whose request is ended come
back at once, and a thousand that come back together would hold up all others."""
GRACE_TICKS = 4
"""If there are too many requests, only those are ended that have been arriving for this many looks. Hundreds
of clients that send headers and body one after the other may have an unfinished request at one moment."""


class Arriving(Protocol):
    """A connection with a request that is not complete."""

    client_key: Hashable
    """The client whose budget the request takes: the holder of a verified token, or the address."""
    verified: bool
    bytes_held: int
    """Bytes of the request that wait in memory."""

    @property
    def in_body(self) -> bool:
        """Whether the headers are complete."""

    @property
    def paused(self) -> bool:
        """Whether this process has stopped reading from the connection."""

    def refuse(self, error: WeirError) -> None:
        """Answer with the error, if anything was sent, and close."""


class UnfinishedRequests:
    """All requests of a process that are still arriving, the oldest first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._tick_s = min(TICK_S, limits.header_timeout_s / 4, limits.body_timeout_s / 4)
        self._since: dict[Arriving, int] = {}
        self._tick = 0
        self._timer: asyncio.TimerHandle | None = None
        self._bytes_held = 0

    def __len__(self) -> int:
        return len(self._since)

    def add(self, request: Arriving) -> None:
        """Begin to watch a request; its age begins again when its body begins."""
        self._since.pop(request, None)
        self._since[request] = self._tick
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._sweep)

    def discard(self, request: Arriving) -> None:
        """Stop watching a request that is complete or gone."""
        self._since.pop(request, None)
        self._bytes_held -= request.bytes_held
        request.bytes_held = 0

    def hold(self, request: Arriving, size: int) -> None:
        """Count bytes of a request that are kept until the rest arrives."""
        request.bytes_held += size
        self._bytes_held += size
        if self._bytes_held > self._limits.max_unfinished_bytes:
            self._shrink(self._since, self._limits.max_unfinished_bytes)

    def relieve(self, count: int) -> None:
        """End the oldest `count` requests, because this process has no file descriptor left."""
        for request in list(self._since)[:count]:
            request.refuse(_too_many())

    def _sweep(self) -> None:
        self._tick += 1
        self._timer = None
        self._end_late()
        self._end_surplus()
        if self._since:
            self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._sweep)

    def _end_late(self) -> None:
        for request, since in list(self._since.items()):
            if request.paused:
                self._since[request] = self._tick
            elif (self._tick - since) * self._tick_s >= self._patience_s(request):
                request.refuse(_too_late(request, self._patience_s(request)))

    def _patience_s(self, request: Arriving) -> float:
        return self._limits.body_timeout_s if request.in_body else self._limits.header_timeout_s

    def _end_surplus(self) -> None:
        """End requests until each client, and then all clients together, are within their limits."""
        limits = self._limits
        share = limits.max_unfinished_per_client
        numbers = Counter(request.client_key for request in self._since)
        sizes: Counter[Hashable] = Counter()
        for request in self._since:
            sizes[request.client_key] += request.bytes_held
        most_bytes = max(limits.max_body_bytes, limits.max_unfinished_bytes * share // limits.max_unfinished)
        for client, number in numbers.items():
            if number > share or sizes[client] > most_bytes:
                own = [request for request in self._since if request.client_key == client]
                self._thin_out(own, number - share)
                self._shrink(own, most_bytes)
        self._thin_out(self._strangers_first(), len(self._since) - limits.max_unfinished)

    def _strangers_first(self) -> list[Arriving]:
        return sorted(self._since, key=lambda request: request.verified)

    def _thin_out(self, requests: Iterable[Arriving], surplus: int) -> None:
        """End the oldest requests, at most `surplus`, whose grace is over."""
        if surplus > 0:
            old = [one for one in requests if self._tick - self._since.get(one, self._tick) >= GRACE_TICKS]
            for request in old[: min(surplus, max(ENDED_PER_LOOK, surplus // 4))]:
                request.refuse(_too_many())

    def _shrink(self, requests: Iterable[Arriving], most_bytes: int) -> None:
        """End the oldest requests until the others hold at most `most_bytes`."""
        held = [request for request in requests if request.bytes_held and request in self._since]
        size = sum(request.bytes_held for request in held)
        for request in held:
            if size <= most_bytes:
                return
            size -= request.bytes_held
            request.refuse(_too_many())


def client_of(host: str) -> Hashable:
    """The client behind an address. An IPv6 client has a whole network, so only the first half counts."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped) if address.ipv4_mapped else address.packed[:8]


def _too_many() -> Overloaded:
    return Overloaded(
        "too many requests of this client are unfinished; send them faster, or fewer at once",
        retry_after_s=1,
    )


def _too_late(request: Arriving, patience_s: float) -> RequestTimeout:
    part = "body" if request.in_body else "headers"
    return RequestTimeout(f"the {part} did not arrive within {patience_s:g} s; send it again")
