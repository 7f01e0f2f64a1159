"""Which ticks go out and which were missed, as a function of the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weir.model.names import EnvironmentRef
from weir.schedules.decide import MAX_AT_ONCE, MAX_CATCH_UP, decide_ticks
from weir.schedules.schedule import Schedule, ScheduleOrigin
from weir.spec.ir import MissedTicks, ScheduleSpec, Timing

HOUR_MS = 3_600_000
START_MS = 1_800_000_000_000 - 1_800_000_000_000 % HOUR_MS


def hourly(missed: MissedTicks, *, every_ms: int = HOUR_MS, refused_ms: int | None = None) -> Schedule:
    return Schedule(
        id="0199a3c2-0000-7000-8000-000000000000",
        environment=EnvironmentRef(organization="o", project="p", environment="e"),
        spec=ScheduleSpec(name="s", queue="q", timing=Timing(every_ms=every_ms), missed=missed),
        origin=ScheduleOrigin.API,
        paused=False,
        created_at_ms=START_MS,
        updated_at_ms=START_MS,
        last_tick_ms=START_MS,
        next_tick_ms=START_MS + every_ms,
        refused_ms=refused_ms,
    )


def at(hours: float) -> int:
    return START_MS + round(hours * HOUR_MS)


@pytest.mark.parametrize("missed", list(MissedTicks))
def test_a_tick_that_is_due_goes_out_and_the_next_does_not(missed):
    decided = decide_ticks(hourly(missed), now_ms=at(1) + 59_000)
    assert (decided.push, decided.skipped, decided.until_ms) == ((at(1),), (), at(1))


@pytest.mark.parametrize("missed", list(MissedTicks))
def test_before_its_time_nothing_goes_out(missed):
    decided = decide_ticks(hourly(missed), now_ms=at(1) - 1)
    assert (decided.push, decided.until_ms) == ((), START_MS)


@pytest.mark.parametrize(
    ("missed", "pushed", "skipped"),
    [
        (MissedTicks.SKIP, [], [(at(5), 5)]),
        (MissedTicks.LAST, [at(5)], [(at(4), 4)]),
        (MissedTicks.ALL, [at(1), at(2), at(3), at(4), at(5)], []),
    ],
)
def test_missed_ticks_are_caught_up_as_declared(missed, pushed, skipped):
    decided = decide_ticks(hourly(missed), now_ms=at(5.5))
    assert list(decided.push) == pushed
    assert [(ticks.last_ms, ticks.count) for ticks in decided.skipped] == skipped
    assert decided.until_ms == at(5)


@pytest.mark.parametrize("missed", [MissedTicks.SKIP, MissedTicks.LAST])
def test_with_a_tick_in_time_the_missed_ones_stay_out(missed):
    decided = decide_ticks(hourly(missed), now_ms=at(5) + 1_000)
    assert list(decided.push) == [at(5)]
    assert [(ticks.last_ms, ticks.count) for ticks in decided.skipped] == [(at(4), 4)]


def test_a_tick_that_its_queue_refused_is_not_missed():
    decided = decide_ticks(hourly(MissedTicks.SKIP, refused_ms=at(1)), now_ms=at(3.5))
    assert list(decided.push) == [at(1)]
    assert decided.until_ms == at(1)


def test_all_is_bounded_and_goes_out_in_parts_without_a_gap():
    schedule = hourly(MissedTicks.ALL, every_ms=1_000)
    now_ms = START_MS + 5_000_000
    pushed: list[int] = []
    rounds = 0
    while (decided := decide_ticks(schedule, now_ms=now_ms)).push:
        pushed += decided.push
        assert len(decided.push) <= MAX_AT_ONCE
        assert len(decided.skipped) == (1 if rounds == 0 else 0)
        schedule = replace(schedule, last_tick_ms=decided.until_ms)
        rounds += 1
    assert pushed == list(range(now_ms - (MAX_CATCH_UP - 1) * 1_000, now_ms + 1, 1_000))
