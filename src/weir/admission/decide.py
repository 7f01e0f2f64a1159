"""Pressure and policy in, a decision out: EXECUTE, QUEUE or REJECT."""

from __future__ import annotations

from enum import StrEnum

from weir.admission.kinds import OperationType
from weir.admission.policy import Policy
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


def decide(
    kind: OperationType, pressure: Pressure, policy: Policy, *, last: Decision = Decision.EXECUTE
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


def lagging(kind: OperationType, pressure: Pressure, policy: Policy, *, last: Decision) -> bool:
    """Whether the process itself cannot keep up; settling and system events are let through all the same."""
    if kind not in _SHED_BY_LAG or pressure.in_flight <= policy.floor:
        return False
    limit_ms = policy.lag_limit_ms * (_POP_PATIENCE if kind is OperationType.POP else 1.0)
    return pressure.lag_ms > limit_ms * (policy.release if last is Decision.REJECT else 1.0)


def full(kind: OperationType, pressure: Pressure, policy: Policy, *, last: Decision) -> bool:
    """Whether the operation queue has no room left for this kind."""
    share = policy.release if last is Decision.REJECT else 1.0
    return pressure.depth > policy.of(kind).depth * share or pressure.queueing >= pressure.queueing_limit
