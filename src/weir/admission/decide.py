"""Pressure and policy in, a decision out: EXECUTE, QUEUE or REJECT. Thresholds are data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from weir.admission.kinds import OperationType

KNEE = 0.7
"""The utilization at which pushes begin to queue; a store at its limit is `KNEE` busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Above `utilization` an operation queues; with more than `depth` operations queued it is rejected."""

    utilization: float
    depth: int
    queueable: bool = True


DEFAULT_THRESHOLD = Threshold(utilization=0.7, depth=10_000)

DEFAULT_THRESHOLDS: Mapping[OperationType, Threshold] = MappingProxyType(
    {
        OperationType.PUSH: DEFAULT_THRESHOLD,
        OperationType.ACK_BATCH: Threshold(utilization=0.8, depth=50_000),
        OperationType.ACK_SINGLE: Threshold(utilization=0.8, depth=50_000),
        OperationType.POP: Threshold(utilization=0.95, depth=0, queueable=False),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPolicy:
    """The thresholds of every kind, and how far pressure must fall before a decision is taken back."""

    thresholds: Mapping[OperationType, Threshold] = field(default_factory=lambda: DEFAULT_THRESHOLDS)
    lag_limit_ms: float = 75.0
    """With more event-loop lag the process itself is the bottleneck: queueing would cost it more than
    executing, so it rejects."""
    floor: int = 4
    """Operations that are executed at once whatever the lag, so that a slow machine still does its work."""
    release: float = 0.85
    """Hysteresis: shedding ends below this share of the threshold that began it."""

    @property
    def calm(self) -> float:
        """The utilization below which everything is executed, whatever was decided last."""
        lowest = min(threshold.utilization for threshold in (DEFAULT_THRESHOLD, *self.thresholds.values()))
        return lowest * self.release

    def of(self, kind: OperationType) -> Threshold:
        return self.thresholds.get(kind, DEFAULT_THRESHOLD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """One reading. `busy_connections` counts connections in use, not those merely opened."""

    busy_connections: int = 0
    connections: int = 0
    """0: the store has no fixed number of connections, or nobody counts them."""
    in_flight: int = 0
    limit: int = 1
    lag_ms: float = 0.0
    depth: int = 0

    queueing: int = 0
    """Operations on their way into the operation queue."""
    queueing_limit: int = 128
    """How many may be on that way at once; more are rejected."""
    may_queue: bool = True
    """Whether the budget for queueing under load has something left."""

    @property
    def utilization(self) -> float:
        """The worse of busy connections, and operations in flight against the limit."""
        pool = self.busy_connections / self.connections if self.connections else 0.0
        return max(pool, KNEE * self.in_flight / max(1, self.limit))


_SHED_BY_LAG = frozenset({OperationType.PUSH, OperationType.POP})
_POP_PATIENCE = 4.0
"""Pops drain what pushes fill, so they are shed much later."""


class Decision(StrEnum):
    EXECUTE = "execute"
    QUEUE = "queue"
    REJECT = "reject"


class Rejection(StrEnum):
    """Why an operation is rejected."""

    EVENT_LOOP_LAG = "event_loop_lag"
    """The process itself cannot keep up."""
    OPERATION_QUEUE_FULL = "operation_queue_full"
    OPERATION_QUEUE_BUSY = "operation_queue_busy"
    """Too many are on their way into the operation queue at once."""
    BURST_SPENT = "burst_spent"
    """The budget for queueing under load is spent."""
    BUSY = "busy"
    """It cannot be queued, and there is no room to execute it."""


def decide(
    kind: OperationType, pressure: Pressure, policy: AdmissionPolicy, *, last: Decision = Decision.EXECUTE
) -> Decision:
    """What to do with one operation, given what was last decided for its kind."""
    threshold = policy.of(kind)
    shedding = last is not Decision.EXECUTE
    busy_from = threshold.utilization * (policy.release if shedding else 1.0)
    if lagging(kind, pressure, policy, last=last):
        return Decision.REJECT
    if pressure.utilization <= busy_from:
        return Decision.EXECUTE
    if not threshold.queueable or not pressure.may_queue or full(kind, pressure, policy, last=last):
        return Decision.REJECT
    return Decision.QUEUE


def rejection(
    kind: OperationType, pressure: Pressure, policy: AdmissionPolicy, *, last: Decision
) -> Rejection:
    """Why `decide` says REJECT."""
    if lagging(kind, pressure, policy, last=last):
        return Rejection.EVENT_LOOP_LAG
    if policy.of(kind).queueable:
        if pressure.queueing >= pressure.queueing_limit:
            return Rejection.OPERATION_QUEUE_BUSY
        if full(kind, pressure, policy, last=last):
            return Rejection.OPERATION_QUEUE_FULL
        if not pressure.may_queue:
            return Rejection.BURST_SPENT
    return Rejection.BUSY


def lagging(kind: OperationType, pressure: Pressure, policy: AdmissionPolicy, *, last: Decision) -> bool:
    """Whether the process itself cannot keep up; settling is let through all the same."""
    if kind not in _SHED_BY_LAG or pressure.in_flight <= policy.floor:
        return False
    limit_ms = policy.lag_limit_ms * (_POP_PATIENCE if kind is OperationType.POP else 1.0)
    return pressure.lag_ms > limit_ms * (policy.release if last is Decision.REJECT else 1.0)


def full(kind: OperationType, pressure: Pressure, policy: AdmissionPolicy, *, last: Decision) -> bool:
    """Whether the operation queue has no room left for this kind, or too many are on their way into it."""
    return deep(kind, pressure, policy, last=last) or pressure.queueing >= pressure.queueing_limit


def deep(kind: OperationType, pressure: Pressure, policy: AdmissionPolicy, *, last: Decision) -> bool:
    """Whether too many operations are queued for one more of this kind."""
    share = policy.release if last is Decision.REJECT else 1.0
    return pressure.depth > policy.of(kind).depth * share
