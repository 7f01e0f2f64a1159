"""A clock that moves only when it is told to."""

from __future__ import annotations

_START_MS = 1_700_000_000_000


class ManualClock:
    """Stands still until `advance`."""

    def __init__(self, now_ms: int = _START_MS) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> int:
        """Move by `ms`, back if it is negative, and return the new time."""
        self._now_ms += ms
        return self._now_ms

    def set(self, now_ms: int) -> None:
        self._now_ms = now_ms
