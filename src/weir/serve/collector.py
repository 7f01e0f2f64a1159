"""How often a process that runs for long collects garbage."""

from __future__ import annotations

import gc


def calm_collector() -> None:
    """Collect garbage seldom: what was built stays until the process ends, and requests leave few cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 25, 25)
