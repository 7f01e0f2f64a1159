"""The life of an alert, as a function: no clock, no store."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from weir.alerts.machine import (
    AlertPolicy,
    AlertStatus,
    Level,
    Memory,
    Observation,
    Transition,
    is_forgettable,
    step,
)

MINUTE = 60_000
POLICY = AlertPolicy(window_ms=5 * MINUTE, cooldown_ms=15 * MINUTE, auto_resolve=True, continuity_ms=90_000)
T0 = 1_000_000_000


def drive(levels: list[Level], *, policy: AlertPolicy = POLICY) -> list[tuple[int, Transition]]:
    """What happens when these levels are seen one after another."""
    memory, seen = Memory(), []
    for number, level in enumerate(levels):
        memory, transitions = step(policy, memory, Observation(level=level), now_ms=T0 + number * 30_000)
        seen += [(number, event) for event in transitions]
    return seen


def test_a_whole_window_fires_at_the_evaluation_that_sees_it() -> None:
    assert drive([Level.CLEAR, Level.PARTIAL, Level.PARTIAL, Level.BREACH, Level.BREACH]) == [
        (1, Transition.PENDING),
        (3, Transition.FIRED),
    ]


def test_a_spike_that_passes_is_never_an_alert() -> None:
    assert drive([Level.PARTIAL, Level.PARTIAL, Level.CLEAR]) == [
        (0, Transition.PENDING),
        (2, Transition.CALMED),
    ]


def test_it_resolves_only_after_a_whole_window_without_a_breach() -> None:
    calm = [Level.CLEAR] * 10
    assert drive([Level.BREACH, *calm]) == [(0, Transition.FIRED)]
    assert drive([Level.BREACH, *calm, Level.CLEAR]) == [(0, Transition.FIRED), (11, Transition.RESOLVED)]
    broken = [Level.BREACH, *calm[:9], Level.PARTIAL, *calm]
    assert drive(broken) == [(0, Transition.FIRED)]


def test_data_that_shows_a_clean_window_resolves_at_once() -> None:
    memory, _ = step(POLICY, Memory(), Observation(level=Level.BREACH), now_ms=T0)
    now_ms = T0 + 10 * MINUTE
    observation = Observation(level=Level.CLEAR, clear_since_ms=now_ms - POLICY.window_ms)
    _, transitions = step(POLICY, memory, observation, now_ms=now_ms)
    assert transitions == (Transition.RESOLVED,)


def test_silence_is_not_calm() -> None:
    silent = [Level.BREACH, *[Level.UNKNOWN] * 40]
    assert drive(silent) == [(0, Transition.FIRED), (1, Transition.WENT_UNKNOWN)]
    back = drive([*silent, *[Level.CLEAR] * 11])
    assert back[2:] == [(41, Transition.KNOWN_AGAIN), (51, Transition.RESOLVED)]


def test_a_cooldown_holds_the_next_alert_back_and_does_not_lose_it() -> None:
    again = [Level.BREACH, *[Level.CLEAR] * 11, *[Level.BREACH] * 20]
    assert drive(again) == [
        (0, Transition.FIRED),
        (11, Transition.RESOLVED),
        (12, Transition.PENDING),
        (30, Transition.FIRED),
    ]


def test_without_auto_resolve_it_stays() -> None:
    policy = replace(POLICY, auto_resolve=False)
    assert drive([Level.BREACH, *[Level.CLEAR] * 100], policy=policy) == [(0, Transition.FIRED)]


def test_an_evaluator_that_slept_does_not_count_the_time_as_calm() -> None:
    memory, _ = step(POLICY, Memory(), Observation(level=Level.BREACH), now_ms=T0)
    memory, _ = step(POLICY, memory, Observation(level=Level.CLEAR), now_ms=T0 + 30_000)
    memory, transitions = step(POLICY, memory, Observation(level=Level.CLEAR), now_ms=T0 + 20 * MINUTE)
    assert transitions == ()
    _, transitions = step(POLICY, memory, Observation(level=Level.CLEAR), now_ms=T0 + 21 * MINUTE)
    assert transitions == ()


@given(st.lists(st.sampled_from(list(Level)), max_size=60))
def test_firing_and_resolving_alternate_and_nothing_resolves_while_unknown(levels: list[Level]) -> None:
    memory = Memory()
    open_before = False
    for number, level in enumerate(levels):
        now_ms = T0 + number * 30_000
        memory, transitions = step(POLICY, memory, Observation(level=level), now_ms=now_ms)
        if Transition.FIRED in transitions:
            assert not open_before
            assert level is Level.BREACH
        if Transition.RESOLVED in transitions:
            assert open_before
            assert level is Level.CLEAR
        if level is Level.UNKNOWN:
            assert memory.status is AlertStatus.UNKNOWN
            assert memory.open == open_before
        open_before = memory.open
        assert not (is_forgettable(POLICY, memory, now_ms=now_ms) and memory.open)
