"""How fast a bulk action may go, and what its canary may be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from weir.errors import InvalidInput
from weir.model.limits import MAX_BATCH

MAX_RATE_PER_S = 1_000_000


def check_rate(rate_per_s: float | None) -> None:
    if rate_per_s is not None and not 0 < rate_per_s <= MAX_RATE_PER_S:
        raise InvalidInput(
            f"`rate_per_s` must be above 0 and at most {MAX_RATE_PER_S:,}; leave it out for no limit"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SendLimits:
    """How fast a bulk action goes. With a canary of N it first sends N messages, waits until each is acked or
    dead, and stops if too many died. A purge sends nothing and has only a rate.
    """

    rate_per_s: float | None = None
    """None for no limit."""
    canary: int = 0
    canary_tolerance: float = 0.0
    """The share of sent messages that may die before the action stops."""
    canary_patience_ms: int = 300_000
    """How long canaries may be undecided before their action stops: five minutes."""

    def __post_init__(self) -> None:
        check_rate(self.rate_per_s)
        if not 0 <= self.canary <= MAX_BATCH:
            raise InvalidInput(f"`canary` must be between 0 and {MAX_BATCH}")
        if not 0 <= self.canary_tolerance < 1:
            raise InvalidInput("`canary_tolerance` is a share from 0 to below 1")
        if self.canary_patience_ms <= 0:
            raise InvalidInput("`canary_patience_ms` must be positive")

    def columns(self) -> dict[str, Any]:
        """The limits as the table of bulk actions names them."""
        return asdict(self)

    def described(self) -> dict[str, Any]:
        """The limits as the audit log keeps them, which leaves out patience."""
        return {name: value for name, value in asdict(self).items() if name != "canary_patience_ms"}


NO_LIMITS = SendLimits()
"""The default: as fast as possible and without a canary."""
