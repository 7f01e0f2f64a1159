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
# Long enough for a long garbage collection, short enough to wait for after a process was killed or a host was
# lost.
LEASE_S = 15.0
_RENEWALS = 3
# After Redis was away the lease may be about to end.
_RETRY_S = 0.5


@contextmanager
def held_lease(
    store: StreamStore, name: str, *, seconds: float, wait_s: float, refusal: str
) -> Iterator[Prolong]:
    """Hold a lease; yields a function that prolongs it.

    A thread renews the lease, however long a step takes. So the lease can be short: it ends by itself
    `seconds` after its process died. Entering the block raises `Conflict` with `refusal` if another process
    has the lease. Prolonging raises `Conflict` if the lease ended, because another may have had it since.
    """
    holder = uuid4().hex

    def renew() -> bool:
        return store.prolong(name, holder=holder, seconds=seconds)

    def prolong() -> None:
        if not renew():
            raise Conflict(f"the lease `{name}` ended before the work was done; try again")

    deadline = time.monotonic() + wait_s
    while not store.claim(name, holder=holder, seconds=seconds):
        if time.monotonic() >= deadline:
            raise Conflict(refusal)
        time.sleep(0.2)
    try:
        with renewed(renew, seconds=seconds, name=name):
            yield prolong
    finally:
        store.unclaim(name, holder=holder)


@contextmanager
def renewed(renew: Callable[[], bool], *, seconds: float, name: str) -> Iterator[None]:
    """Call `renew` in a thread while the block runs, as `renew_until` does."""
    ended = threading.Event()
    thread = threading.Thread(
        target=renew_until, args=(ended, renew), kwargs={"seconds": seconds, "name": name},
        name=f"{name}-lease", daemon=True,
    )  # fmt: skip
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def renew_until(ended: threading.Event, renew: Callable[[], bool], *, seconds: float, name: str) -> None:
    """Call `renew` three times within `seconds`, until `ended` is set or `renew` returns False."""
    pause_s = seconds / _RENEWALS
    while not ended.wait(pause_s):
        pause_s = seconds / _RENEWALS
        try:
            if not renew():
                return
        except BrokerUnavailable as error:
            _log.warning("a lease could not be renewed", lease=name, error=str(error))
            pause_s = _RETRY_S
