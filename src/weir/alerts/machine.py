"""The states of an alert as a pure function of the last state and a new observation.

        ┌────────── clear ──────────┐
    inactive ── part of the window ──▶ pending ── whole window, cooldown over ──▶ firing
        ▲                                                                          │
        └───────────────────── resolved ◀── clear for a whole window ──────────────┘

Stale telemetry turns any of them into `unknown`. An open alert stays open then: missing telemetry does not
prove calm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class AlertStatus(StrEnum):
    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"
    UNKNOWN = "unknown"


class Level(StrEnum):
    """The result of judging a measurement."""

    BREACH = "breach"
    """The condition holds for the whole window."""
    PARTIAL = "partial"
    """It holds for a part of the window, or the value is within the hysteresis."""
    CLEAR = "clear"
    UNKNOWN = "unknown"


class Transition(StrEnum):
    """A change of state. All but `PENDING` and `CALMED` are lines of the alert's timeline."""

    PENDING = "pending"
    CALMED = "calmed"
    FIRED = "fired"
    RESOLVED = "resolved"
    WENT_UNKNOWN = "went_unknown"
    KNOWN_AGAIN = "known_again"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPolicy:
    """The part of a rule that the transitions depend on."""

    window_ms: int
    cooldown_ms: int
    auto_resolve: bool
    continuity_ms: int
    """Evaluations further apart than this do not prove calm between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The state of one rule for one queue, kept between evaluations."""

    status: AlertStatus = AlertStatus.INACTIVE
    since_ms: int = 0
    open: bool = False
    """An alert was raised and has not been resolved."""
    clear_since_ms: int | None = None
    last_fired_ms: int | None = None
    evaluated_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The measurement of one rule for one queue, judged."""

    level: Level
    value: float | None = None
    clear_since_ms: int | None = None
    """Since when the value is clear, if the data itself shows it."""


def step(
    policy: AlertPolicy, memory: Memory, observation: Observation, *, now_ms: int
) -> tuple[Memory, tuple[Transition, ...]]:
    """The next memory, and the transitions that led to it."""
    clear_since = _clear_since(policy, memory, observation, now_ms=now_ms)
    memory = replace(memory, clear_since_ms=clear_since, evaluated_ms=now_ms)
    if observation.level is Level.UNKNOWN:
        return _to(memory, AlertStatus.UNKNOWN, now_ms, Transition.WENT_UNKNOWN)
    memory, known = _known(memory, now_ms)
    if memory.open:
        memory, after = _while_open(policy, memory, now_ms=now_ms)
    else:
        memory, after = _while_closed(policy, memory, observation, now_ms=now_ms)
    return memory, known + after


def is_forgettable(policy: AlertPolicy, memory: Memory, *, now_ms: int) -> bool:
    """Whether dropping this memory would change nothing."""
    resting = not memory.open and memory.status in (AlertStatus.INACTIVE, AlertStatus.RESOLVED)
    cooled = memory.last_fired_ms is None or now_ms - memory.last_fired_ms >= policy.cooldown_ms
    return resting and cooled


def _clear_since(policy: AlertPolicy, memory: Memory, observation: Observation, *, now_ms: int) -> int | None:
    if observation.level is not Level.CLEAR:
        return None
    if observation.clear_since_ms is not None:
        return observation.clear_since_ms
    if memory.clear_since_ms is None or now_ms - memory.evaluated_ms > policy.continuity_ms:
        return now_ms
    return memory.clear_since_ms


def _known(memory: Memory, now_ms: int) -> tuple[Memory, tuple[Transition, ...]]:
    if memory.status is not AlertStatus.UNKNOWN:
        return memory, ()
    status = AlertStatus.FIRING if memory.open else AlertStatus.INACTIVE
    return _to(memory, status, now_ms, Transition.KNOWN_AGAIN)


def _while_open(policy: AlertPolicy, memory: Memory, *, now_ms: int) -> tuple[Memory, tuple[Transition, ...]]:
    calm_ms = -1 if memory.clear_since_ms is None else now_ms - memory.clear_since_ms
    if policy.auto_resolve and calm_ms >= policy.window_ms:
        return _to(replace(memory, open=False), AlertStatus.RESOLVED, now_ms, Transition.RESOLVED)
    return memory, ()


def _while_closed(
    policy: AlertPolicy, memory: Memory, observation: Observation, *, now_ms: int
) -> tuple[Memory, tuple[Transition, ...]]:
    cooled = memory.last_fired_ms is None or now_ms - memory.last_fired_ms >= policy.cooldown_ms
    if observation.level is Level.BREACH and cooled:
        raised = replace(memory, open=True, last_fired_ms=now_ms)
        return _to(raised, AlertStatus.FIRING, now_ms, Transition.FIRED)
    if observation.level is not Level.CLEAR:
        return _to(memory, AlertStatus.PENDING, now_ms, Transition.PENDING)
    if memory.status is AlertStatus.PENDING:
        return _to(memory, AlertStatus.INACTIVE, now_ms, Transition.CALMED)
    return memory, ()


def _to(
    memory: Memory, status: AlertStatus, now_ms: int, transitions: Transition
) -> tuple[Memory, tuple[Transition, ...]]:
    if memory.status is status:
        return memory, ()
    return replace(memory, status=status, since_ms=now_ms), (transitions,)
