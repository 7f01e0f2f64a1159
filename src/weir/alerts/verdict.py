"""A verdict: the cause of a queue's state, its evidence, and the other causes that hold as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Cause(StrEnum):
    PAUSED = "paused"
    NO_WORKERS = "no_workers"
    """Messages are ready and nobody takes them."""
    DOWNSTREAM_REFUSING = "downstream_refusing"
    """Attempts fail, and their errors come from a service that the handlers call."""
    HANDLERS_FAILING = "handlers_failing"
    """Most attempts fail, and their errors come from the handlers."""
    POISON_MESSAGES = "poison_messages"
    """Some attempts fail while others go through."""
    LEASES_LAPSED = "leases_lapsed"
    """Consumers died, or held messages longer than their lease."""
    SLOW_HANDLERS = "slow_handlers"
    ARRIVAL_SPIKE = "arrival_spike"
    LIMIT_REACHED = "limit_reached"
    TOO_FEW_WORKERS = "too_few_workers"
    """Everything works, and more arrives than is done."""
    TELEMETRY_STALE = "telemetry_stale"
    HEALTHY = "healthy"
    """Nothing waits, or the waiting messages are being worked off."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    cause: Cause
    summary: str
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    cause: Cause
    summary: str
    evidence: Mapping[str, Any]
    also: tuple[Finding, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "cause": self.cause.value,
            "summary": self.summary,
            "evidence": dict(self.evidence),
            "also": [
                {"cause": one.cause.value, "summary": one.summary, "evidence": dict(one.evidence)}
                for one in self.also
            ],
        }
