"""Lengths of time in milliseconds, and parsers for how people and programs write them."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TypeAlias

from weir.errors import InvalidInput

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS

Duration: TypeAlias = float | timedelta
"""A length of time in Python code: seconds, or a timedelta."""

UNITS_MS = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS, "w": WEEK_MS}
"""The units of a written duration, such as `90s`, `1.5h` or `14d`."""
_WRITTEN = re.compile(r"(?P<number>\d{1,15}(?:\.\d{1,6})?)(?P<unit>ms|s|m|h|d|w)", re.ASCII)


def written_ms(text: str) -> int | None:
    """The milliseconds of a duration as people write it; None if `text` is not one."""
    found = _WRITTEN.fullmatch(text)
    return None if found is None else round(float(found["number"]) * UNITS_MS[found["unit"]])


def duration_ms(text: str) -> int:
    """The milliseconds of a written duration; raises `InvalidInput` if `text` is not one."""
    found = written_ms(text)
    if found is None:
        raise InvalidInput(f"`{text:.40}` is not a time; write `45s`, `30m`, `12h` or `90d`")
    return found


def to_seconds(duration: Duration) -> float:
    """The seconds of a duration in Python code."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not (0 <= seconds < math.inf):
        raise ValueError(f"{duration!r} is not a length of time; expected zero or more seconds")
    return seconds


def to_ms(duration: Duration) -> int:
    """The whole milliseconds of a duration in Python code."""
    return round(to_seconds(duration) * SECOND_MS)


def to_optional_ms(duration: Duration | None) -> int | None:
    """The same, where a duration may be left out."""
    return None if duration is None else to_ms(duration)
