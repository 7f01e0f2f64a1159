"""Pressure and policy in, a decision out: EXECUTE, QUEUE or REJECT."""

from __future__ import annotations

from enum import StrEnum

from weir.admission.kinds import OperationType
from weir.admission.policy import Policy
from weir.admission.pressure import Pressure


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
    if pressure.utilization(lag_limit_ms=policy.lag_limit_ms) <= busy_from:
        return Decision.EXECUTE
    if not threshold.queueable or full(kind, pressure, policy, last=last):
        return Decision.REJECT
    return Decision.QUEUE


def full(kind: OperationType, pressure: Pressure, policy: Policy, *, last: Decision) -> bool:
    """Whether the operation queue has no room left for this kind."""
    share = policy.release if last is Decision.REJECT else 1.0
    return pressure.depth > policy.of(kind).depth * share
