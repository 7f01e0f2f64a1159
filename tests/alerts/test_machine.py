"""The life of an alert, as a function: no clock, no store."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weir.alerts.machine import AlertPolicy, AlertStatus, Happened, Level, Memory, Sight, is_forgettable, step

MINUTE = 60_000
POLICY = AlertPolicy(window_ms=5 * MINUTE, cooldown_ms=15 * MINUTE, auto_resolve=True)
T0 = 1_000_000_000


def drive(
    levels: list[Level], *, policy: AlertPolicy = POLICY, every_ms: int = 30_000
) -> list[tuple[int, Happened]]:
    """What happens when these levels are seen one after another."""
    memory, seen = Memory(), []
    for number, level in enumerate(levels):
        memory, happened = step(policy, memory, Sight(level=level), now_ms=T0 + number * 30_000)
        seen += [(number, event) for event in happened]
    return seen


def test_a_whole_window_fires_at_the_evaluation_that_sees_it() -> None:
    assert drive([Level.CLEAR, Level.PARTIAL, Level.PARTIAL, Level.BREACH, Level.BREACH]) == [
        (1, Happened.PENDING),
        (3, Happened.FIRED),
    ]


def test_a_spike_that_passes_is_never_an_alert() -> None:
    assert drive([Level.PARTIAL, Level.PARTIAL, Level.CLEAR]) == [(0, Happened.PENDING), (2, Happened.CALMED)]


def test_it_resolves_only_after_a_whole_window_without_a_breach() -> None:
    calm = [Level.CLEAR] * 10
    assert drive([Level.BREACH, *calm]) == [(0, Happened.FIRED)]
    assert drive([Level.BREACH, *calm, Level.CLEAR]) == [(0, Happened.FIRED), (11, Happened.RESOLVED)]
    broken = [Level.BREACH, *calm[:9], Level.PARTIAL, *calm]
    assert drive(broken) == [(0, Happened.FIRED)]


def test_data_that_shows_a_clean_window_resolves_at_once() -> None:
    memory, _ = step(POLICY, Memory(), Sight(level=Level.BREACH), now_ms=T0)
    now_ms = T0 + 10 * MINUTE
    sight = Sight(level=Level.CLEAR, clear_since_ms=now_ms - POLICY.window_ms)
    _, happened = step(POLICY, memory, sight, now_ms=now_ms)
    assert happened == (Happened.RESOLVED,)


def test_silence_is_not_calm() -> None:
    silent = [Level.BREACH, *[Level.UNKNOWN] * 40]
    assert drive(silent) == [(0, Happened.FIRED), (1, Happened.WENT_UNKNOWN)]
    back = drive([*silent, *[Level.CLEAR] * 11])
    assert back[2:] == [(41, Happened.KNOWN_AGAIN), (51, Happened.RESOLVED)]


def test_a_cooldown_holds_the_next_alert_back_and_does_not_lose_it() -> None:
    again = [Level.BREACH, *[Level.CLEAR] * 11, *[Level.BREACH] * 20]
    assert drive(again) == [
        (0, Happened.FIRED),
        (11, Happened.RESOLVED),
        (12, Happened.PENDING),
        (30, Happened.FIRED),
    ]


def test_without_auto_resolve_it_stays() -> None:
    policy = AlertPolicy(window_ms=MINUTE, cooldown_ms=0, auto_resolve=False)
    assert drive([Level.BREACH, *[Level.CLEAR] * 100], policy=policy) == [(0, Happened.FIRED)]


def test_an_evaluator_that_slept_does_not_count_the_time_as_calm() -> None:
    memory, _ = step(POLICY, Memory(), Sight(level=Level.BREACH), now_ms=T0)
    memory, _ = step(POLICY, memory, Sight(level=Level.CLEAR), now_ms=T0 + 30_000)
    memory, happened = step(POLICY, memory, Sight(level=Level.CLEAR), now_ms=T0 + 20 * MINUTE)
    assert happened == ()
    _, happened = step(POLICY, memory, Sight(level=Level.CLEAR), now_ms=T0 + 21 * MINUTE)
    assert happened == ()


@given(st.lists(st.sampled_from(list(Level)), max_size=60))
def test_firing_and_resolving_alternate_and_nothing_resolves_while_unknown(levels: list[Level]) -> None:
    memory = Memory()
    open_before = False
    for number, level in enumerate(levels):
        now_ms = T0 + number * 30_000
        memory, happened = step(POLICY, memory, Sight(level=level), now_ms=now_ms)
        if Happened.FIRED in happened:
            assert not open_before
            assert level is Level.BREACH
        if Happened.RESOLVED in happened:
            assert open_before
            assert level is Level.CLEAR
        if level is Level.UNKNOWN:
            assert memory.status is AlertStatus.UNKNOWN
            assert memory.open == open_before
        open_before = memory.open
        assert not (is_forgettable(POLICY, memory, now_ms=now_ms) and memory.open)
