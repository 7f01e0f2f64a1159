"""How long a queued operation will wait: measured, not assumed."""

from __future__ import annotations

import math
from dataclasses import dataclass

_SHARE = 0.3
"""What the last round counts for: load changes within a few rounds, and a promise is made for now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How fast the queue drains: operations a second, and the wait of one that finds it empty."""

    per_s: float
    floor_ms: float

    def wait_ms(self, ahead: int) -> int | None:
        """The wait of an operation with `ahead` before it; None when nothing drains."""
        if self.per_s <= 0:
            return None
        return max(1, round(max(self.floor_ms, ahead / self.per_s * 1000)))

    def with_others(self, others: Rate) -> Rate:
        """How fast this process and others drain together."""
        if not others.per_s or not self.per_s:
            return self if self.per_s else others
        return Rate(per_s=self.per_s + others.per_s, floor_ms=(self.floor_ms + others.floor_ms) / 2)


UNKNOWN = Rate(per_s=0.0, floor_ms=0.0)


class RateMeter:
    """Learns one process's drain rate from the rounds that its processor ran.

    A round that took all it had room for says how fast the queue drains, the pause before it included. Any
    other only bounds the rate: from below by what it finished, from above by what it had room for; and it
    says how long an operation waits that finds nothing ahead of it.
    """

    def __init__(self, *, initial_per_s: float = 0.0) -> None:
        self._per_s = initial_per_s
        self._floor_ms = 0.0

    def round(self, *, operations: int, room: int, took_s: float, ages_ms: list[int]) -> None:
        if operations == 0 or took_s <= 0:
            return
        least, most = operations / took_s, max(operations, room) / took_s
        if not self._per_s:
            self._per_s = math.sqrt(least * most)
        self._per_s += (min(max(self._per_s, least), most) - self._per_s) * _SHARE
        if operations < room and ages_ms:
            ages_ms.sort()
            median = ages_ms[len(ages_ms) // 2]
            share = _SHARE if self._floor_ms else 1.0
            self._floor_ms += (median - self._floor_ms) * share

    @property
    def rate(self) -> Rate:
        return Rate(per_s=self._per_s, floor_ms=self._floor_ms)
