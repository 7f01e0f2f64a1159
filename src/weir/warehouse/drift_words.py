"""Says what is wrong with a queue's metrics, in words that the terminal, the page and alerts share."""

from __future__ import annotations

from collections.abc import Mapping


def drift_in_words(counters: Mapping[str, int], *, tier_drift: int, live_drift: int) -> str:
    """The parts of a drift: `3 enqueued lost, tiers differ by 2`."""
    parts = [
        f"{abs(count):,} {name} {'lost' if count > 0 else 'counted twice'}"
        for name, count in counters.items()
        if count
    ]
    if tier_drift:
        parts.append(f"tiers differ by {tier_drift:,}")
    if live_drift:
        parts.append(f"{live_drift:,} never arrived")
    return ", ".join(parts)
