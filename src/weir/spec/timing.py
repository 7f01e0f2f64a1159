"""When a schedule ticks: by cron in a time zone, or every so often. Pure functions of a time.

Ticks are milliseconds since the epoch. `every` counts from the epoch, so the ticks do not depend on when the
schedule was made or which process asks.

On days on which clocks change, ticks follow cronsim, which follows Debian's cron. A cron with a fixed hour
ticks once on such a day: at the moment of the jump if the clock skips its time, and the first time if its
time comes twice. A cron whose minute or hour begins with `*` follows the time that passes: it ticks in both
of two equal hours, and not in an hour that the clock skips.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from weir.errors import InvalidInput
from weir.model.durations import DAY_MS, HOUR_MS, SECOND_MS
from weir.model.limits import MAX_SPAN_MS
from weir.model.wording import duration
from weir.spec.ir import Timing
from weir.spec.spec_problems import nearest

MIN_EVERY_MS = SECOND_MS
MAX_CRON = 200
"""Characters of a cron expression; the longest useful ones have about 60."""
FIELDS = "minute, hour, day of the month, month, day of the week"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_START = datetime(2024, 1, 1, tzinfo=UTC)
"""The search for a first tick begins here, so that its answer does not depend on the current day."""
# cronsim raises its own error for mistakes that it knows, and the others for some that it does not expect.
_UNREADABLE = (CronSimError, ValueError, AssertionError, TypeError, IndexError)


def check_timing(timing: Timing) -> None:
    """InvalidInput unless the timing is one of `cron` and `every`, and will tick."""
    if (timing.cron is None) == (timing.every_ms is None):
        raise InvalidInput("a schedule needs either `cron` or `every`; give one of them")
    if timing.every_ms is not None:
        check_every(timing.every_ms)
        return
    check_timezone(timing.timezone)
    check_cron(timing.cron or "", timing.timezone)


def check_every(every_ms: int) -> None:
    """InvalidInput if an interval is too short or too long."""
    if not MIN_EVERY_MS <= every_ms <= MAX_SPAN_MS:
        raise InvalidInput(
            f"`every` is {duration(every_ms)}; expected at least {duration(MIN_EVERY_MS)} "
            "and at most ten years"
        )


def check_timezone(name: str) -> None:
    """InvalidInput if there is no such time zone."""
    if name not in _zones():
        hint = nearest(name, _zones())
        raise InvalidInput(
            f"there is no time zone `{name:.80}`; write one such as `Europe/Berlin`"
            + (f" ({hint})" if hint else "")
        )


def check_cron(text: str, timezone: str = "UTC") -> None:
    """InvalidInput if a cron expression cannot be read, or never ticks."""
    fields = text.split()
    if len(text) > MAX_CRON or len(fields) != 5:
        raise InvalidInput(f"`{text:.80}` is not a cron expression; expected five fields: {FIELDS}")
    try:
        found = next(CronSim(text, _START.astimezone(_zone(timezone))), None)
    except _UNREADABLE as error:
        said = str(error).lower() or "it cannot be read"
        raise InvalidInput(f"`{text}` is not a cron expression: {said}; its fields are {FIELDS}") from None
    if found is None:
        raise InvalidInput(f"`{text}` never comes: no date fits it; change its day or its month")


def ticks_after(timing: Timing, after_ms: int) -> Iterator[int]:
    """The ticks later than a moment, the earliest first; it may end, if no date fits for 50 years."""
    if timing.every_ms is not None:
        return _every(timing.every_ms, after_ms)
    return _cron(timing.cron or "", timing.timezone, after_ms)


def next_ticks(timing: Timing, after_ms: int, count: int) -> list[int]:
    """The next ticks after a moment."""
    return list(islice(ticks_after(timing, after_ms), count))


def newest_ticks(timing: Timing, *, after_ms: int, until_ms: int, limit: int) -> tuple[list[int], bool]:
    """The newest ticks in a span, at most `limit`, and whether there are older ones in it.

    The span may be years long. It is searched from its end, in stretches that grow until they hold enough, so
    that the cost depends on `limit` and not on the span.
    """
    if timing.every_ms is not None:
        last = until_ms - until_ms % timing.every_ms
        first = max(after_ms + 1, last - (limit - 1) * timing.every_ms)
        found = list(range(first + -first % timing.every_ms, last + 1, timing.every_ms))
        return found, bool(found) and found[0] - timing.every_ms > after_ms
    stretch_ms = HOUR_MS
    while True:
        start_ms = max(after_ms, until_ms - stretch_ms)
        found = _until(ticks_after(timing, start_ms), until_ms)
        if len(found) > limit:
            return found[-limit:], True
        if start_ms == after_ms:
            return found, False
        # A day or more without a tick means that ticks are rare, so the stretch grows faster.
        stretch_ms *= 4 if found or stretch_ms < DAY_MS else 16


def _until(ticks: Iterator[int], until_ms: int) -> list[int]:
    found: list[int] = []
    for tick in ticks:
        if tick > until_ms:
            break
        found.append(tick)
    return found


def _every(every_ms: int, after_ms: int) -> Iterator[int]:
    tick = after_ms - after_ms % every_ms
    while True:
        tick += every_ms
        yield tick


def _cron(text: str, timezone: str, after_ms: int) -> Iterator[int]:
    try:
        start = _EPOCH + timedelta(milliseconds=after_ms)
        last = after_ms
        for found in CronSim(text, start.astimezone(_zone(timezone))):
            tick = round((found - _EPOCH).total_seconds() * SECOND_MS)
            # In the second of two equal hours cronsim gives times of the first again.
            if tick > last:
                last = tick
                yield tick
    except (*_UNREADABLE, OSError, OverflowError) as error:
        raise InvalidInput(f"`{text}` in `{timezone}` has no times: {error}") from None


@lru_cache(maxsize=1_024)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())
