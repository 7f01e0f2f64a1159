"""When pressure is too high for which kind of operation: the thresholds, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        OperationType.SYSTEM_EVENT: Threshold(utilization=float("inf"), depth=0, queueable=False),
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
