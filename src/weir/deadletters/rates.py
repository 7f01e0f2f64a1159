"""How fast a bulk action may go, and what its canary may be."""

from __future__ import annotations

from weir.errors import InvalidInput
from weir.model.limits import MAX_BATCH

DEFAULT_PATIENCE_MS = 300_000
"""How long canaries may be undecided before their action stops: five minutes."""

MAX_RATE_PER_S = 1_000_000


def check_rate(rate_per_s: float | None) -> None:
    if rate_per_s is not None and not 0 < rate_per_s <= MAX_RATE_PER_S:
        raise InvalidInput(
            f"`rate_per_s` must be above 0 and at most {MAX_RATE_PER_S:,}; leave it out for no limit"
        )


def check_canary(canary: int, tolerance: float, patience_ms: int) -> None:
    """Refuse a canary that makes no sense."""
    if not 0 <= canary <= MAX_BATCH:
        raise InvalidInput(f"`canary` must be between 0 and {MAX_BATCH}")
    if not 0 <= tolerance < 1:
        raise InvalidInput("`canary_tolerance` is a share from 0 to below 1")
    if patience_ms <= 0:
        raise InvalidInput("`canary_patience_ms` must be positive")
