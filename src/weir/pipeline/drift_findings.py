"""What one audit found, by queue and by environment. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from weir.model.names import EnvironmentRef, QueueRef
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.audit_history import QueueDrift
from weir.warehouse.audit_reader import Counts, DriftingQueue, TierSums, named

Live = Mapping[QueueRef, Counts]
"""The odometers of queues in Redis."""

LandedOdometers = Mapping[QueueRef, tuple[int, Counts]]
"""The time and the odometers of the newest landed event of each queue."""

_NOTHING: tuple[int, Counts] = (0, (0,) * len(QUEUE_COUNTERS))
# As many as a person reads; the history keeps all of them.
_SHOWN = 100


def ahead_of(landed: LandedOdometers, live: Live) -> dict[QueueRef, Counts]:
    """How far live odometers are ahead of the landed ones, for queues where any is ahead."""
    found = {}
    for queue, totals in live.items():
        _, known = landed.get(queue, _NOTHING)
        ahead = tuple(max(now - then, 0) for now, then in zip(totals, known, strict=True))
        if any(ahead):
            found[queue] = ahead
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The differences that one audit found."""

    accounts: Sequence[DriftingQueue] = ()
    queue_tiers: Mapping[QueueRef, int] = field(default_factory=dict)
    environment_tiers: Mapping[EnvironmentRef, int] = field(default_factory=dict)
    unseen: Live = field(default_factory=dict)
    """How far live odometers are ahead although everything has landed."""
    last_ms: Mapping[QueueRef, int] = field(default_factory=dict)
    """The time of the newest landed event of each queue with drift."""
    queues: int = 0
    events: int = 0
    tiers: Sequence[TierSums] = ()
    lives: int = 0
    life_drift: Mapping[QueueRef, int] = field(default_factory=dict)
    """Lives that the odometers of queues count and that neither landed nor were lost in a gap."""

    @property
    def sums(self) -> dict[str, int]:
        """The columns of the history that say how much was compared and what differed."""
        return {
            "ledger_drift": sum(_size(account.drift) for account in self.accounts) + self.missing_lives,
            "tier_drift": sum(self.queue_tiers.values()) + sum(self.environment_tiers.values()),
            "live_drift": sum(map(_size, self.unseen.values())),
            "queues": self.queues,
            "events": self.events,
        }

    @property
    def missing_lives(self) -> int:
        return _size(tuple(self.life_drift.values()))

    @property
    def drift(self) -> int:
        sums = self.sums
        return sums["ledger_drift"] + sums["tier_drift"] + sums["live_drift"]

    def by_queue(self) -> list[QueueDrift]:
        """Every queue with drift of any kind, worst first."""
        ledger = {account.queue: account for account in self.accounts}
        found = [
            QueueDrift(
                queue=queue,
                last_ms=self.last_ms.get(queue, 0),
                ledger_drift=ledger[queue].drift if queue in ledger else (),
                tier_drift=self.queue_tiers.get(queue, 0),
                live_drift=_size(self.unseen.get(queue, ())),
            )
            for queue in {**ledger, **self.queue_tiers, **self.unseen}
        ]
        return sorted(found, key=lambda one: -one.size)

    def by_environment(self) -> dict[EnvironmentRef, int]:
        """The drift of every environment that has any, including the drift of its queues."""
        sums = dict(self.environment_tiers)
        for one in self.by_queue():
            sums[one.queue.scope] = sums.get(one.queue.scope, 0) + one.size
        for queue, drift in self.life_drift.items():
            sums[queue.scope] = sums.get(queue.scope, 0) + abs(drift)
        return sums

    def worst(self) -> list[dict[str, Any]]:
        """The worst queues, and the environments whose own tiers differ, for people and programs."""
        queues = [
            {
                **asdict(one.queue),
                "drift": one.size,
                "counters": {name: count for name, count in named(one.ledger_drift).items() if count},
                "tier_drift": one.tier_drift,
                "live_drift": one.live_drift,
            }
            for one in self.by_queue()[:_SHOWN]
        ]
        environments = [
            {
                **asdict(scope),
                "queue": None,
                "drift": drift,
                "counters": {},
                "tier_drift": drift,
                "live_drift": 0,
            }
            for scope, drift in list(self.environment_tiers.items())[:_SHOWN]
        ]
        lives = [
            {
                **asdict(queue),
                "drift": abs(drift),
                "counters": {"lives": drift},
                "tier_drift": 0,
                "live_drift": 0,
            }
            for queue, drift in list(self.life_drift.items())[:_SHOWN]
        ]
        return queues + lives + environments


def _size(counts: Sequence[int]) -> int:
    return sum(map(abs, counts))
