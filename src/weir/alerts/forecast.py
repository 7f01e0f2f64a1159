"""Where a queue is heading if the rates of the last minutes go on. Pure."""

from __future__ import annotations

import math


def expiring(*, backlog: int, oldest_age_ms: float, served_per_s: float, ttl_ms: float | None) -> int:
    """How many of the waiting messages will reach their TTL before their turn comes.

    The messages arrived evenly over the age of the oldest, and leave in that order: the one at position p
    has the age `oldest · (1 - p / backlog)` and waits `p / served` more. Both are straight lines in p,
    so the positions that run out of time are one stretch at an end of the queue.
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
