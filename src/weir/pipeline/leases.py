"""Leases in Redis: work that must not run twice at a time has one holder, also over several processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from weir.errors import Conflict
from weir.telemetry.store import StreamStore

Prolong = Callable[[], None]


@contextmanager
def held_lease(
    store: StreamStore, name: str, *, seconds: float, wait_s: float, refusal: str
) -> Iterator[Prolong]:
    """Hold a lease; yields a function that prolongs it.

    Both raise `Conflict` with `refusal` if another process has the lease.
    """
    holder = uuid4().hex

    def prolong() -> None:
        if not store.claim(name, holder=holder, seconds=seconds):
            raise Conflict(refusal)

    _claim_within(prolong, wait_s)
    try:
        yield prolong
    finally:
        store.unclaim(name, holder=holder)


def _claim_within(claim: Prolong, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return claim()
        except Conflict:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)
