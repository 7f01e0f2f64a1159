"""Pressure and policy in, a decision out: EXECUTE, QUEUE or REJECT."""

from __future__ import annotations

from enum import StrEnum

from weir.admission.kinds import OperationType
from weir.admission.policy import AdmissionPolicy
from weir.admission.pressure import Pressure

_SHED_BY_LAG = frozenset(
    {OperationType.PUSH, OperationType.POP, OperationType.BACKGROUND_JOB, OperationType.ANALYTICS}
)
_POP_PATIENCE = 4.0
"""Pops drain what pushes fill, so they are shed much later."""


class Decision(StrEnum):
    EXECUTE = "execute"
    QUEUE = "queue"
    REJECT = "reject"


class Rejection(StrEnum):
    """Why an operation is rejected, in the order in which it is asked."""

    EVENT_LOOP_LAG = "event_loop_lag"
    """The process itself cannot keep up."""
    OPERATION_QUEUE_FULL = "operation_queue_full"
    OPERATION_QUEUE_BUSY = "operation_queue_busy"
    """Too many are on their way into the operation queue at once."""
    BURST_SPENT = "burst_spent"
    """What may be queued for load was queued."""
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
    """Whether the process itself cannot keep up; settling and system events are let through all the same."""
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
