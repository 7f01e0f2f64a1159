"""The forecast for a queue if its current rates continue. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weir.alerts.evidence import RATES_NOT_KNOWN
from weir.alerts.situation import Situation
from weir.model.wording import amount, duration, rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The forecast if the current rates continue."""

    drain_ms: float | None
    """Infinite if the backlog does not shrink; None if that is not known."""
    arriving_per_s: float | None
    """None if it is not known; `leaving_per_s` is None then too."""
    leaving_per_s: float | None
    expiring: int | None
    """Waiting messages that will expire before their turn comes; None if that is not known."""

    @property
    def summary(self) -> str:
        """One sentence for people."""
        if self.arriving_per_s is None or self.leaving_per_s is None:
            return f"{'empty now;' if self.drain_ms == 0 else 'no forecast:'} {RATES_NOT_KNOWN}"
        rates = f"{rate(self.arriving_per_s)} arrive, {rate(self.leaving_per_s)} leave"
        if self.drain_ms == 0:
            return f"empty now; {rates}"
        drain_ms = math.inf if self.drain_ms is None else self.drain_ms
        drain = f"empty in {duration(drain_ms)}" if math.isfinite(drain_ms) else "does not drain"
        expiring = f"; {amount(self.expiring, 'message')} will expire first" if self.expiring else ""
        return f"{drain} at the rates of now: {rates}{expiring}"


def outlook_of(situation: Situation, *, ttl_ms: int | None) -> Outlook:
    pace = situation.pace
    if pace is None or not situation.reachable:
        nothing = 0 if situation.reachable and situation.depth == 0 else None
        return Outlook(drain_ms=nothing, arriving_per_s=None, leaving_per_s=None, expiring=nothing)
    return Outlook(
        drain_ms=pace.drain_ms(situation.depth),
        arriving_per_s=pace.arriving,
        leaving_per_s=pace.leaving,
        expiring=expiring(
            backlog=situation.depth,
            oldest_age_ms=situation.oldest_age_ms,
            served_per_s=pace.taken,
            ttl_ms=ttl_ms,
        ),
    )


def expiring(*, backlog: int, oldest_age_ms: float, served_per_s: float, ttl_ms: float | None) -> int:
    """How many of the waiting messages will reach their TTL before their turn comes.

    The messages are taken to have arrived evenly over the age of the oldest, and to leave in that order. The
    one at position p has the age `oldest · (1 - p / backlog)` and waits `p / served` more. Both are linear in
    p, so the positions that reach their TTL are one stretch at one end of the queue.
    """
    if backlog <= 0 or ttl_ms is None or not math.isfinite(ttl_ms):
        return 0
    if served_per_s <= 0:
        return backlog
    age_slope = oldest_age_ms / backlog
    slope = 1_000 / served_per_s - age_slope
    spare = ttl_ms - oldest_age_ms
    if slope == 0:
        return backlog if spare < 0 else 0
    crossing = spare / slope
    if slope > 0:
        return _clamp(backlog - 1 - math.floor(crossing), backlog)
    return _clamp(math.ceil(crossing), backlog)


def _clamp(count: int, backlog: int) -> int:
    return min(max(count, 0), backlog)
