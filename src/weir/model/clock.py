"""Times in milliseconds since the epoch: the clock as a dependency, which tests set, and a time as text."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int: ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def iso_time(time_ms: int) -> str:
    """A time for programs: `2026-11-17T03:00:00.000Z`. For people there is `wording.moment`."""
    text = datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
