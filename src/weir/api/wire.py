"""The facts about a request that the HTTP server and the parts of the application share: its request slot,
the notes in its scope, its answer, and the metrics of requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from starlette.types import Scope

from weir import __version__
from weir.admission.capacity import FairShares
from weir.control.principals import Principal
from weir.errors import WeirError
from weir.model.holders import HOLDER, STRANGERS, Holder


class Capacity:
    """Limits the requests at once. The last fifth is for holders below their fair share, so that no holder
    takes everything."""

    def __init__(self, most: int, refusal: Callable[[], WeirError], *, most_each: int | None = None) -> None:
        self.shares = FairShares()
        self._most = most
        self._open_to_all = most - most // 5
        self._most_each = most_each
        self._refusal = refusal

    def take(self, holder: Holder) -> None:
        """Count one more, or raise the refusal."""
        shares = self.shares
        if shares.total >= self._open_to_all and not self._allows(holder):
            raise self._refusal()
        if self._most_each is not None and shares.held(holder) >= self._most_each:
            raise self._refusal()
        shares.take(holder)

    def _allows(self, holder: Holder) -> bool:
        return self.shares.total < self._most and self.shares.allows(holder, self._open_to_all)


class RequestSlot:
    """The part of a capacity that one request takes, from its last byte to its answer."""

    __slots__ = ("_capacity", "_taken", "holder")

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._taken = False
        self.holder = STRANGERS

    def take(self) -> None:
        """Take the slot, unless it is taken already; raises the refusal if none is left."""
        if not self._taken:
            self._capacity.take(self.holder)
            self._taken = True

    def belongs_to(self, holder: Holder) -> None:
        """Set the holder, once the credential of the request is verified."""
        if self._taken:
            self._capacity.shares.give_back(self.holder)
            self._capacity.shares.take(holder)
        self.holder = holder

    def release(self) -> None:
        if self._taken:
            self._taken = False
            self._capacity.shares.give_back(self.holder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer of an endpoint."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = b"application/json"

    @classmethod
    def json(cls, value: Any, *, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Reply:
        return cls(body=orjson.dumps(value), status=status, headers=headers)


ENDED_BY = "weir.ended_by"
"""The error with which the server ended a request that did not arrive completely, and answered it."""
ADMITTED = "weir.admitted"
"""The holder of a push that was admitted at its head; it counts as arriving until the application begins."""
PRINCIPAL = "weir.principal"
"""The principal that sends the request, if its credential is verified already."""
ARRIVAL = "weir.arrival"
"""The `Arrival` of the request."""
SLOT = "weir.slot"
"""The `RequestSlot` that the request takes."""


class Arrival(Protocol):
    """A request that may not have arrived completely."""

    def belongs_to(self, holder: Holder) -> None:
        """Count the unfinished request for its holder, once the credential is verified."""


CLIENT_LEFT = 499
"""The status that is counted for a request whose client has left."""


def status_of_loss(scope: Scope) -> int:
    """The status to count for a request whose client left, or that the server ended as too slow."""
    error: WeirError | None = scope.get(ENDED_BY)
    return CLIENT_LEFT if error is None else error.status


def note_principal(scope: Scope, principal: Principal) -> None:
    """Note the principal of a request, once its credential is verified."""
    scope[PRINCIPAL] = principal
    note_holder(scope, principal.holder)


def note_holder(scope: Scope, holder: Holder) -> None:
    """From now on the request takes this holder's share of the process."""
    HOLDER.set(holder)
    slot: RequestSlot | None = scope.get(SLOT)
    if slot is not None:
        slot.belongs_to(holder)
    arrival: Arrival | None = scope.get(ARRIVAL)
    if arrival is not None:
        arrival.belongs_to(holder)


BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Instruments:
    """The metrics of requests. Each application has its own registry, so that two in one process do not
    add up."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=True)
        self._requests = Histogram(
            "weir_http_request_duration_seconds",
            "Time to answer a request, by route template.",
            ("method", "route", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._bound: dict[tuple[str, str, int], Histogram] = {}

    def observe(self, *, method: str, route: str, status: int, took_s: float) -> None:
        key = (method, route, status)
        bound = self._bound.get(key)
        if bound is None:
            shown = method if method in _METHODS else "OTHER"
            bound = self._requests.labels(shown, route, str(status))
            if shown == method:
                self._bound[key] = bound
        bound.observe(took_s)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def build_info() -> GaugeMetricFamily:
    """The version that runs, as a constant 1."""
    family = GaugeMetricFamily("weir_build_info", "The version of Weir that answers.", labels=("version",))
    family.add_metric((__version__,), 1)
    return family
