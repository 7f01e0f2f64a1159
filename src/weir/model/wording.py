"""Writes numbers as people say them, for every text that a person reads: `42.6 s`, `1 attempt`, `3.2/s`."""

from __future__ import annotations

from datetime import UTC, datetime

from weir.model.durations import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

_UNITS = (("d", DAY_MS), ("h", HOUR_MS), ("min", MINUTE_MS), ("s", SECOND_MS))


def duration(ms: float) -> str:
    """A length of time: `85 ms`, `42.6 s`, `3 min 20 s`, `2 h 5 min`, `4 d`."""
    seconds = ms / SECOND_MS
    if seconds < 1:
        return f"{ms:.0f} ms"
    if round(seconds, 1) < 60:
        return f"{_short(seconds)} s"
    return _compound(round(seconds) * SECOND_MS)


def _compound(ms: int) -> str:
    """The two largest units; the second is left out if it is 0."""
    at = next(index for index, (_, width) in enumerate(_UNITS) if ms >= width)
    (unit, width), (smaller, part) = _UNITS[at], _UNITS[at + 1]
    whole, rest = divmod(ms, width)
    return f"{whole:,} {unit}" + (f" {rest // part} {smaller}" if rest >= part else "")


def duration_beside(ms: float, other_ms: float) -> str:
    """A length of time in the unit of another one, so that both compare at a glance: `0.2 s` to `3.5 s`."""
    if other_ms < SECOND_MS or ms >= SECOND_MS or round(ms / SECOND_MS, 1) == 0:
        return duration(ms)
    return f"{ms / SECOND_MS:.1f} s"


def span(ms: int) -> str:
    """A length of time within a sentence, in full where it is whole: `1 minute`, `2 hours`, `30 s`."""
    nouns = (("day", DAY_MS), ("hour", HOUR_MS), ("minute", MINUTE_MS))
    for noun, width in nouns:
        if ms and ms % width == 0:
            return amount(ms // width, noun)
    return duration(ms)


def moment(time_ms: int) -> str:
    """A moment to the second: `2026-11-17 06:12:03 UTC`."""
    return f"{datetime.fromtimestamp(time_ms / SECOND_MS, UTC):%Y-%m-%d %H:%M:%S} UTC"


def amount(count: int, noun: str) -> str:
    """A number of things: `1 message`, `1,200 messages`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def number(value: float) -> str:
    """Three significant digits, without an exponent for large numbers."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def rate(per_second: float, noun: str = "") -> str:
    """A rate: `31.2/s`, or `31.2 messages/s`."""
    return f"{_short(per_second)}{f' {noun}s' if noun else ''}/s"


def share(part: float) -> str:
    """A share of a whole: `12 %`."""
    return f"{part * 100:.0f} %"


def _short(value: float) -> str:
    """One decimal, or none if it would be 0."""
    return f"{value:,.1f}".removesuffix(".0")
