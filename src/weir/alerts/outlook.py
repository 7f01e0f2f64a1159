"""Where one queue is heading, from its situation. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from weir.alerts.forecast import expiring
from weir.alerts.verdict import Situation
from weir.warehouse.reading.arithmetic import drain_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What happens if the recent rates go on."""

    drain_ms: float
    """Infinite if the backlog does not shrink."""
    expiring: int
    """Waiting messages that will expire before their turn comes."""


def outlook_of(situation: Situation, *, ttl_ms: int | None) -> Outlook:
    recent = situation.recent
    left = recent.count("acked") + recent.count("dead") + recent.count("expired")
    return Outlook(
        drain_ms=drain_ms(
            backlog=situation.depth, arrived=recent.count("enqueued"), left=left, span_ms=recent.span_ms
        ),
        expiring=expiring(
            backlog=situation.depth,
            oldest_age_ms=situation.oldest_age_ms,
            served_per_s=recent.rate("dequeued"),
            ttl_ms=ttl_ms,
        ),
    )
