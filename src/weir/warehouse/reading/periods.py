"""Chooses the tier and the bucket width that answer a question about a period.

The length of a period picks its resolution (30 min and 2 h: 5 s; 24 h and 7 days: 1 min; longer: 1 h), and a
caller may ask for another one. No answer has more than `MAX_POINTS` points: a longer one gets coarser buckets
of the same tier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from weir.errors import InvalidInput
from weir.model.durations import DAY_MS, HOUR_MS, written_ms
from weir.model.limits import MAX_TIME_MS
from weir.warehouse.tables import STEPS_MS, TierRetention

# A day of minutes has 1,440 points, so it is shown without coarser buckets.
MAX_POINTS = 1_500
# Twice the default retention of the hours.
MAX_PERIOD_MS = 800 * DAY_MS


class Resolution(StrEnum):
    """A tier, named for the width of its buckets."""

    FIVE_SECONDS = "5s"
    MINUTE = "1m"
    HOUR = "1h"

    @property
    def step_ms(self) -> int:
        return STEPS_MS[self]


_LADDERS: dict[Resolution, tuple[int, ...]] = {
    Resolution.FIVE_SECONDS: (1, 2, 3, 6, 12, 24, 60, 120, 180, 360, 720),
    Resolution.MINUTE: (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440),
    Resolution.HOUR: (1, 2, 3, 6, 12, 24, 48, 168),
}
"""Bucket widths that people can read, as multiples of the tier's own."""


def retention_by_resolution(retention: TierRetention) -> Mapping[Resolution, int]:
    """How long each tier keeps its rows, in milliseconds."""
    days = zip(Resolution, retention.by_step, strict=True)
    return MappingProxyType({resolution: count * DAY_MS for resolution, count in days})


DEFAULT_RETENTION_MS = retention_by_resolution(TierRetention())


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A span of time cut into buckets of one tier; both ends stand on a multiple of the bucket width."""

    start_ms: int
    end_ms: int
    resolution: Resolution
    step_ms: int

    def __post_init__(self) -> None:
        if self.start_ms % self.step_ms or self.end_ms % self.step_ms or self.end_ms <= self.start_ms:
            raise ValueError("a window starts and ends on its own buckets and is not empty")

    @property
    def points(self) -> int:
        return (self.end_ms - self.start_ms) // self.step_ms

    @property
    def span_ms(self) -> int:
        return self.end_ms - self.start_ms

    def bucket_of(self, time_ms: int) -> int:
        """The start of the bucket that holds a moment."""
        return time_ms - time_ms % self.step_ms


def parse_period(text: str) -> int:
    """A length of time such as `30m`, `2h`, `7d` or `90s`, in milliseconds."""
    period_ms = written_ms(text) or 0
    if not 0 < period_ms <= MAX_PERIOD_MS:
        raise InvalidInput(f"`{text:.32}` is not a period; expected something like `30m`, `24h` or `7d`")
    return period_ms


def parse_resolution(text: str) -> Resolution:
    try:
        return Resolution(text)
    except ValueError:
        known = ", ".join(f"`{resolution}`" for resolution in Resolution)
        raise InvalidInput(f"`{text:.32}` is not a resolution; expected one of {known}") from None


def resolution_for(
    *, start_ms: int, end_ms: int, now_ms: int, retention_ms: Mapping[Resolution, int] = DEFAULT_RETENTION_MS
) -> Resolution:
    """The tier for a span: by its length, or a coarser one if that has dropped the start of the span."""
    span_ms = end_ms - start_ms
    choices: tuple[Resolution, ...] = ()
    if span_ms <= 2 * HOUR_MS:
        choices = (Resolution.FIVE_SECONDS, Resolution.MINUTE)
    elif span_ms <= 7 * DAY_MS:
        choices = (Resolution.MINUTE,)
    for choice in choices:
        if start_ms >= now_ms - retention_ms[choice]:
            return choice
    return Resolution.HOUR


def window_for(
    *,
    start_ms: int,
    end_ms: int,
    now_ms: int,
    resolution: Resolution | None = None,
    max_points: int = MAX_POINTS,
    retention_ms: Mapping[Resolution, int] = DEFAULT_RETENTION_MS,
) -> Window:
    """The buckets that answer for a span; a span that reaches into the future ends now."""
    end_ms = min(end_ms, now_ms)
    if not 0 <= start_ms < end_ms <= MAX_TIME_MS:
        raise InvalidInput("the period is empty or lies in the future; let `from` come before `to` and now")
    if end_ms - start_ms > MAX_PERIOD_MS:
        raise InvalidInput(f"the period is too long; at most {MAX_PERIOD_MS // DAY_MS} days are answered")
    chosen = resolution or resolution_for(
        start_ms=start_ms, end_ms=end_ms, now_ms=now_ms, retention_ms=retention_ms
    )
    step_ms = _step_for(chosen, start_ms=start_ms, end_ms=end_ms, max_points=max_points)
    start_ms, end_ms = _aligned(start_ms, end_ms, step_ms)
    return Window(start_ms=start_ms, end_ms=end_ms, resolution=chosen, step_ms=step_ms)


def _aligned(start_ms: int, end_ms: int, step_ms: int) -> tuple[int, int]:
    return start_ms - start_ms % step_ms, -(-end_ms // step_ms) * step_ms


def _step_for(resolution: Resolution, *, start_ms: int, end_ms: int, max_points: int) -> int:
    """The narrowest readable bucket that keeps the answer within `max_points`."""
    tier_ms = resolution.step_ms
    for multiple in _LADDERS[resolution]:
        start, end = _aligned(start_ms, end_ms, multiple * tier_ms)
        if (end - start) // (multiple * tier_ms) <= max_points:
            return multiple * tier_ms
    # One point fewer, because aligning both ends can add a bucket.
    widest = _LADDERS[resolution][-1]
    multiple = widest * -(-(end_ms - start_ms) // ((max_points - 1) * widest * tier_ms))
    return multiple * tier_ms
