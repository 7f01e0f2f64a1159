"""How long a queued operation will wait: measured, not assumed."""

from __future__ import annotations

from dataclasses import dataclass

_SMOOTHING_S = 2.0
_FLOOR_SHARE = 0.3


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


UNKNOWN = Rate(per_s=0.0, floor_ms=0.0)


class RateMeter:
    """Learns one process's drain rate from the rounds that its processor ran.

    A round that emptied the queue says how long an operation waits at least, and how fast it *could*
    have gone: operations over busy time. A round that left some behind says how fast it goes.
    """

    def __init__(self, *, initial_per_s: float = 0.0) -> None:
        self._per_s = initial_per_s
        self._floor_ms = 0.0

    def round(self, *, operations: int, busy_s: float, ages_ms: list[int], emptied: bool) -> None:
        if operations == 0 or busy_s <= 0:
            return
        rate = operations / busy_s
        if not self._per_s:
            self._per_s = rate
        elif not emptied or rate > self._per_s:
            weight = min(1.0, busy_s / _SMOOTHING_S)
            self._per_s += (rate - self._per_s) * weight
        if emptied and ages_ms:
            ages_ms.sort()
            median = ages_ms[len(ages_ms) // 2]
            share = _FLOOR_SHARE if self._floor_ms else 1.0
            self._floor_ms += (median - self._floor_ms) * share

    @property
    def rate(self) -> Rate:
        return Rate(per_s=self._per_s, floor_ms=self._floor_ms)
