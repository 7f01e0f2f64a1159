"""What benches share to print what they measured."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The measured value that this share of the values is below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def say(text: str) -> None:
    """Tell the reader how far the bench is; standard output has only its figures."""
    print(text, file=sys.stderr, flush=True)
