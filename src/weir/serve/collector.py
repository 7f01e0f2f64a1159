"""How often a long-running process collects garbage."""

from __future__ import annotations

import gc


def calm_collector() -> None:
    """Collect garbage seldom: the parts of the process stay until it ends, and requests leave few cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 25, 25)
