"""Back-off: how long to wait before something that failed is tried again."""

from __future__ import annotations

from dataclasses import dataclass

# 2.0 ** 1024 is too large for a float; every back-off has reached its longest pause long before.
_LARGEST_EXPONENT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses that grow by `factor` with each failure in a row, from `first_s` up to `longest_s`."""

    first_s: float
    longest_s: float
    factor: float = 2.0

    def pause_s(self, failures: int) -> float:
        """The pause after this many failures in a row, at least one."""
        return min(self.first_s * self.factor ** min(failures - 1, _LARGEST_EXPONENT), self.longest_s)
