"""Every error that Weir raises on purpose, in one tree.

    WeirError
    ├── InvalidInput             422  what was sent cannot be accepted; change it
    │   ├── Malformed            400  it cannot even be read
    │   ├── TooLarge             413  it is over a stated limit
    │   ├── UnsupportedMedia     415  its type or encoding is not taken here
    │   ├── KeyReused            422  an idempotency key or a call came back with another payload
    │   ├── OverBudget           422  an expression or a spec takes too much time or memory
    │   └── SpecInvalid          422  a spec does not check; carries positions
    ├── Unauthenticated          401  no credential, or one that does not hold
    ├── Forbidden                403  the credential does not reach this far
    ├── NotFound                 404  there is no such thing in the caller's scope
    ├── Conflict                 409  the state does not allow it now
    │   ├── LeaseLost            409  the lease lapsed or belongs to someone else
    │   ├── CallStale            409  a named call came after a later one of its slot; name it anew
    │   └── InFlight             409  the first request with this key is still running
    ├── Overloaded               429  retry after the stated delay
    ├── Unavailable              503  a store is out of reach or out of room; retry
    │   ├── QueueFull            503  the queue is at its `max_depth`
    │   ├── BrokerUnavailable    503  Redis
    │   ├── ControlUnavailable   503  PostgreSQL
    │   └── WarehouseUnavailable 503  ClickHouse
    └── Misconfigured            exit status 2; the process cannot start like this

A class exists only where a caller would act differently. Messages say what happened, with names in
backticks, then what to do.
"""

from __future__ import annotations

from typing import Any, ClassVar


class WeirError(Exception):
    """The root: knows its stable code, its HTTP status and whether trying again can help."""

    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after_s: float | None = None, **extra: Any) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        self.extra = extra


class InvalidInput(WeirError):
    code = "invalid_input"
    title = "Invalid input"
    status = 422


class Malformed(InvalidInput):
    code = "malformed"
    title = "Malformed request"
    status = 400


class TooLarge(InvalidInput):
    code = "too_large"
    title = "Too large"
    status = 413


class UnsupportedMedia(InvalidInput):
    code = "unsupported_media"
    title = "Unsupported media type"
    status = 415


class KeyReused(InvalidInput):
    code = "key_reused"
    title = "Idempotency key reused with another payload"


class OverBudget(InvalidInput):
    code = "over_budget"
    title = "Over its budget"


class SpecInvalid(InvalidInput):
    code = "spec_invalid"
    title = "Spec does not check"


class Unauthenticated(WeirError):
    code = "unauthenticated"
    title = "Not authenticated"
    status = 401


class Forbidden(WeirError):
    code = "forbidden"
    title = "Forbidden"
    status = 403


class NotFound(WeirError):
    code = "not_found"
    title = "Not found"
    status = 404


class Conflict(WeirError):
    code = "conflict"
    title = "Conflict"
    status = 409


class LeaseLost(Conflict):
    code = "lease_lost"
    title = "Lease lost"


class CallStale(Conflict):
    code = "call_stale"
    title = "Call stale"


class InFlight(Conflict):
    code = "in_flight"
    title = "Request in flight"
    retryable = True


class Overloaded(WeirError):
    code = "overloaded"
    title = "Overloaded"
    status = 429
    retryable = True


class Unavailable(WeirError):
    code = "unavailable"
    title = "Unavailable"
    status = 503
    retryable = True


class QueueFull(Unavailable):
    code = "queue_full"
    title = "Queue full"


class BrokerUnavailable(Unavailable):
    code = "broker_unavailable"
    title = "Broker unavailable"


class ControlUnavailable(Unavailable):
    code = "control_unavailable"
    title = "Control store unavailable"


class WarehouseUnavailable(Unavailable):
    code = "warehouse_unavailable"
    title = "Warehouse unavailable"


class Misconfigured(WeirError):
    code = "misconfigured"
    title = "Misconfigured"
