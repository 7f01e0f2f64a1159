"""Leases in Redis: work that must not run twice at a time has one holder among all processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import structlog

from weir.errors import BrokerUnavailable, Conflict
from weir.telemetry.store import StreamStore

_log = structlog.get_logger(__name__)

Prolong = Callable[[], None]
_RENEWALS = 3
"""How often a lease is renewed within its time."""


@contextmanager
def held_lease(
    store: StreamStore, name: str, *, seconds: float, wait_s: float, refusal: str
) -> Iterator[Prolong]:
    """Hold a lease; yields a function that prolongs it.

    A thread renews the lease, however long a step takes. So the lease can be short: it ends by itself
    `seconds` after its process died. Entering the block and prolonging both raise `Conflict` with `refusal`
    if another process has the lease.
    """
    holder = uuid4().hex

    def prolong() -> None:
        if not store.claim(name, holder=holder, seconds=seconds):
            raise Conflict(refusal)

    _claim_within(prolong, wait_s)
    ended = threading.Event()
    renewing = threading.Thread(
        target=_renew, args=(prolong, seconds / _RENEWALS, ended), name=f"{name}-lease", daemon=True
    )
    renewing.start()
    try:
        yield prolong
    finally:
        # End the thread first: it must not take the lease again after it was given back.
        ended.set()
        renewing.join()
        store.unclaim(name, holder=holder)


def _renew(prolong: Prolong, pause_s: float, ended: threading.Event) -> None:
    while not ended.wait(pause_s):
        try:
            prolong()
        except Conflict:
            # Another process has it. The holder finds out when it prolongs the lease itself.
            return
        except BrokerUnavailable as error:
            _log.warning("a lease could not be renewed", error=str(error))


def _claim_within(claim: Prolong, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return claim()
        except Conflict:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)
