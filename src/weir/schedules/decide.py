"""Decides which ticks of a schedule go out now, and which do not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weir.model.durations import MINUTE_MS
from weir.model.wording import duration
from weir.schedules.schedule import Schedule
from weir.spec.ir import MissedTicks
from weir.spec.timing import newest_ticks

IN_TIME_MS = MINUTE_MS
"""A tick that is decided later than this was missed. If a process dies, another one takes over within a
second or two; if it freezes, within half of this time."""
MAX_CATCH_UP = 1_000
"""The most due ticks that are looked at. Older ones are skipped, whatever `missed` says."""
MAX_AT_ONCE = 100
"""The most ticks of one schedule that go out in one round. The next round goes on."""
MISSED = "missed: nothing ran for more than " + duration(IN_TIME_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedTicks:
    """Ticks in a row that do not go out."""

    last_ms: int
    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedTicks:
    """What to do with the ticks of a schedule up to `until_ms`."""

    push: tuple[int, ...]
    skipped: tuple[SkippedTicks, ...]
    until_ms: int
    """The last tick that is decided."""


def decide_ticks(schedule: Schedule, *, now_ms: int) -> DecidedTicks:
    """Divide the due ticks into ticks that go out and ticks that were missed."""
    due, _ = newest_ticks(
        schedule.spec.timing, after_ms=schedule.last_tick_ms, until_ms=now_ms, limit=MAX_CATCH_UP + 1
    )
    too_old, due = due[:-MAX_CATCH_UP], due[-MAX_CATCH_UP:]
    if not due:
        return DecidedTicks(push=(), skipped=(), until_ms=schedule.last_tick_ms)
    kept = _kept(schedule, due, now_ms=now_ms)[:MAX_AT_ONCE]
    # Ticks behind the last one that goes out now are decided in the next round.
    until_ms = kept[-1] if kept else due[-1]
    missed = [tick for tick in due if tick <= until_ms and tick not in kept]
    return DecidedTicks(push=tuple(kept), skipped=_skipped(missed, too_old), until_ms=until_ms)


def _kept(schedule: Schedule, due: Sequence[int], *, now_ms: int) -> list[int]:
    in_time = [tick for tick in due if tick >= now_ms - IN_TIME_MS]
    match schedule.spec.missed:
        case MissedTicks.ALL:
            return list(due)
        case MissedTicks.LAST:
            return in_time or [due[-1]]
        case MissedTicks.SKIP:
            # A refused tick is not missed: it was tried in time, and its queue did not take it.
            refused = [tick for tick in due if tick == schedule.refused_ms and tick not in in_time]
            return refused + in_time


def _skipped(missed: Sequence[int], too_old: Sequence[int]) -> tuple[SkippedTicks, ...]:
    """The skipped ticks. Ticks that are too old are not counted: after years that would take long."""
    found = []
    if too_old:
        reason = f"missed, as were all before it: only the last {MAX_CATCH_UP:,} missed ticks are looked at"
        found.append(SkippedTicks(last_ms=too_old[-1], count=1, reason=reason))
    if missed:
        found.append(SkippedTicks(last_ms=missed[-1], count=len(missed), reason=MISSED))
    return tuple(found)
