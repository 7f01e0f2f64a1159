"""The demo's tenants and queues, and their traffic as pure functions of time.

The past and the live traffic use the same functions, so that charts continue without a break.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weir.demo.past_incidents import NO_EFFECT, IncidentEffect, PastIncident, effect_of
from weir.model.durations import DAY_MS, MINUTE_MS
from weir.model.names import EnvironmentRef
from weir.model.shards import text_key

INCIDENT_EVERY_MS = 20 * MINUTE_MS
INCIDENT_LASTS_MS = 3 * MINUTE_MS
LANDED = "past-landed"
"""The name of a file in the data directory that exists once the past has landed."""
INCIDENT_AFTER_MS = 90_000
"""How long after its start a demo shows the first incident."""
# Slow enough that the payments pile up: 4 workers at 3 s each do less than 4 per second.
SLOWDOWN = 25
INCIDENT_FAILURES = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStory:
    """How messages arrive at one queue, how fast handlers are, and how often they fail."""

    name: str
    per_second: float
    """The mean arrivals of a day."""
    handler_ms: float
    workers: int
    limit: int | None = None
    daily_swing: float = 0.5
    """0 means the same rate all day, 1 means none at night."""
    burst: float = 0.0
    """Arrivals are this many times higher for one minute in ten."""
    failure_share: float = 0.0
    poison_share: float = 0.0
    paused: bool = False
    incident: bool = False
    """Whether its handlers slow down in the incidents of the running demo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    environment: EnvironmentRef
    queues: tuple[QueueStory, ...]


def _environment(organization: str, project: str, name: str) -> EnvironmentRef:
    return EnvironmentRef(organization=organization, project=project, environment=name)


SHOP = Tenant(
    environment=_environment("acme", "shop", "production"),
    queues=(
        QueueStory(name="emails", per_second=6, handler_ms=12, workers=8, limit=20),
        QueueStory(name="orders", per_second=3, handler_ms=40, workers=8, failure_share=0.02),
        QueueStory(name="ledger", per_second=1.5, handler_ms=15, workers=1, daily_swing=0.2),
        QueueStory(name="thumbnails", per_second=2.5, handler_ms=350, workers=2, limit=2, burst=4),
        QueueStory(name="payments", per_second=4, handler_ms=120, workers=4, limit=4, incident=True),
        QueueStory(name="imports", per_second=0.8, handler_ms=30, workers=4, poison_share=0.04),
        QueueStory(name="exports", per_second=0.2, handler_ms=50, workers=2, paused=True),
        QueueStory(name="pagerduty", per_second=0.5, handler_ms=25, workers=4, burst=6),
    ),
)
STAGING = Tenant(
    environment=_environment("acme", "shop", "staging"),
    queues=(
        QueueStory(name="emails", per_second=0.5, handler_ms=10, workers=2),
        QueueStory(name="load test: 1*", per_second=1, handler_ms=5, workers=2, burst=8),
    ),
)
BILLING = Tenant(
    environment=_environment("globex", "billing", "production"),
    queues=(
        QueueStory(name="invoices", per_second=1, handler_ms=45, workers=4, limit=8),
        QueueStory(name="dunning", per_second=0.3, handler_ms=80, workers=2, failure_share=0.1),
    ),
)
TENANTS = (SHOP, STAGING, BILLING)


def arrivals_per_second(story: QueueStory, at_ms: int) -> float:
    """The arrival rate of a queue at a moment, which varies with the day, the week and bursts."""
    day = math.sin(2 * math.pi * ((at_ms % DAY_MS) / DAY_MS - 0.3))
    # The first day of Unix time was a Thursday, the fourth day of a week that ends with a weekend.
    weekend = 0.6 if (at_ms // DAY_MS + 3) % 7 >= 5 else 1.0
    wave = (1 + story.daily_swing * day) * weekend
    return story.per_second * wave * _noise(story.name, at_ms // MINUTE_MS) * _burst(story, at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incidents:
    """The incidents of the demo: while it runs, the bank is slow now and then; its past has a calendar."""

    first_ms: int = 0
    """The first incident of the running demo; others begin every `INCIDENT_EVERY_MS` after it."""
    past: tuple[PastIncident, ...] = ()

    def hit(self, story: QueueStory, at_ms: int) -> bool:
        """Whether an incident of the running demo slows the handlers of a queue at a moment."""
        since_ms = at_ms - self.first_ms
        return story.incident and since_ms >= 0 and since_ms % INCIDENT_EVERY_MS < INCIDENT_LASTS_MS

    def effect(self, story: QueueStory, at_ms: int) -> IncidentEffect:
        """The effect of a past incident on a queue at a moment."""
        found = next((one for one in self.past if one.hits(story.name, at_ms)), None)
        return NO_EFFECT if found is None else effect_of(found.kind)

    def handler_ms(self, story: QueueStory, at_ms: int) -> float:
        """How long one message takes at a moment."""
        return story.handler_ms * (SLOWDOWN if self.hit(story, at_ms) else self.effect(story, at_ms).slower)

    def failure_share(self, story: QueueStory, at_ms: int) -> float:
        """The share of attempts that fail at a moment."""
        live = INCIDENT_FAILURES if self.hit(story, at_ms) else 0
        return story.failure_share + live + self.effect(story, at_ms).failures


def _burst(story: QueueStory, at_ms: int) -> float:
    minute = at_ms // MINUTE_MS
    return story.burst if story.burst and (minute + text_key(story.name)) % 10 == 0 else 1.0


def _noise(name: str, minute: int) -> float:
    return 0.8 + 0.4 * (text_key(name, str(minute)) % 1_000) / 1_000
