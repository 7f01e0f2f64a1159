"""How many operations the store really takes at once: found by watching their latency.

Additive increase while latency is under the target and the limit is being used, multiplicative decrease
when a window's latency is over it or an operation failed for load: the limit settles where the store
answers at about the target, whatever its size.
"""

from __future__ import annotations

WINDOW = 32
"""Operations between two corrections; while they are too slow, a quarter of that."""


class AdaptiveLimit:
    def __init__(
        self, *, initial: int = 64, minimum: int = 4, maximum: int = 1_024, target_ms: float = 50.0
    ) -> None:
        self._limit = float(initial)
        self._minimum = minimum
        self._maximum = maximum
        self._target_ms = target_ms
        self._latency_ms = 0.0
        self._samples = 0
        self._peak = 0

    @property
    def limit(self) -> int:
        return int(self._limit)

    def observe(self, *, latency_ms: float, in_flight: int) -> None:
        """One operation ended after `latency_ms`; `in_flight` were running with it."""
        self._latency_ms += latency_ms
        self._samples += 1
        self._peak = max(self._peak, in_flight)
        mean_ms = self._latency_ms / self._samples
        if self._samples >= (WINDOW // 4 if mean_ms > self._target_ms else WINDOW):
            self._correct(mean_ms)

    def overloaded(self) -> None:
        """The store said that it has too much: do not wait for the window."""
        self._set(self._limit * 0.7)

    def _correct(self, mean_ms: float) -> None:
        if mean_ms > self._target_ms:
            self._set(self._limit * max(0.7, self._target_ms / mean_ms))
        elif self._peak >= 0.8 * self._limit:
            self._set(self._limit + max(1.0, self._limit**0.5 / 2))
        self._latency_ms, self._samples, self._peak = 0.0, 0, 0

    def _set(self, limit: float) -> None:
        self._limit = min(float(self._maximum), max(float(self._minimum), limit))
