"""How long callers wait for something that may be out of reach: less, just after one waited in vain."""

from __future__ import annotations

import time

_FAIL_FAST_S = 1.0


class FailFast:
    """The longest wait. For 1 s after a timeout it is a quarter of that, so that others learn of it soon."""

    __slots__ = ("_fail_fast_until", "_longest_s")

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._fail_fast_until = 0.0

    def wait_s(self) -> float:
        """How long to wait now."""
        return self._longest_s / 4 if time.monotonic() < self._fail_fast_until else self._longest_s

    def note_timeout(self) -> None:
        self._fail_fast_until = time.monotonic() + _FAIL_FAST_S
