"""How fast a bulk action may go."""

from __future__ import annotations

from weir.errors import InvalidInput

MAX_RATE_PER_S = 1_000_000


def check_rate(rate_per_s: float | None) -> None:
    if rate_per_s is not None and not 0 < rate_per_s <= MAX_RATE_PER_S:
        raise InvalidInput(
            f"`rate_per_s` must be above 0 and at most {MAX_RATE_PER_S:,}; leave it out for no limit"
        )
