"""The life of an alert as a pure function: what was, what is seen now, what follows.

        ┌────────── clear ──────────┐
    inactive ── part of the window ──▶ pending ── whole window, cooldown over ──▶ firing
        ▲                                                                          │
        └───────────────────── resolved ◀── clear for a whole window ──────────────┘

Stale telemetry turns any of them into `unknown`. An open alert stays open there: silence is not calm.
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
    """What one evaluation sees."""

    BREACH = "breach"
    """The condition holds for the whole window."""
    PARTIAL = "partial"
    """It holds for a part of the window, or the value is within the hysteresis."""
    CLEAR = "clear"
    UNKNOWN = "unknown"


class Happened(StrEnum):
    """What an evaluation changed; each is a line of the alert's timeline."""

    PENDING = "pending"
    CALMED = "calmed"
    FIRED = "fired"
    RESOLVED = "resolved"
    WENT_UNKNOWN = "went_unknown"
    KNOWN_AGAIN = "known_again"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPolicy:
    """What the machine needs of a rule."""

    window_ms: int
    cooldown_ms: int
    auto_resolve: bool
    continuity_ms: int = 90_000
    """Two evaluations further apart than this do not prove that nothing happened between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is remembered of one rule about one queue."""

    status: AlertStatus = AlertStatus.INACTIVE
    since_ms: int = 0
    open: bool = False
    """An alert was raised and has not been resolved."""
    clear_since_ms: int | None = None
    last_fired_ms: int | None = None
    evaluated_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One evaluation of one rule about one queue."""

    level: Level
    value: float | None = None
    clear_since_ms: int | None = None
    """Set when the data itself shows since when the value is clear."""


def step(
    policy: AlertPolicy, memory: Memory, sight: Sight, *, now_ms: int
) -> tuple[Memory, tuple[Happened, ...]]:
    """The next memory and what happened on the way there."""
    clear_since = _clear_since(policy, memory, sight, now_ms=now_ms)
    memory = replace(memory, clear_since_ms=clear_since, evaluated_ms=now_ms)
    if sight.level is Level.UNKNOWN:
        return _to(memory, AlertStatus.UNKNOWN, now_ms, Happened.WENT_UNKNOWN)
    memory, known = _known(memory, now_ms)
    if memory.open:
        memory, after = _while_open(policy, memory, now_ms=now_ms)
    else:
        memory, after = _while_closed(policy, memory, sight, now_ms=now_ms)
    return memory, known + after


def is_forgettable(policy: AlertPolicy, memory: Memory, *, now_ms: int) -> bool:
    """Whether nothing would change if this memory were dropped."""
    resting = not memory.open and memory.status in (AlertStatus.INACTIVE, AlertStatus.RESOLVED)
    cooled = memory.last_fired_ms is None or now_ms - memory.last_fired_ms >= policy.cooldown_ms
    return resting and cooled


def _clear_since(policy: AlertPolicy, memory: Memory, sight: Sight, *, now_ms: int) -> int | None:
    if sight.level is not Level.CLEAR:
        return None
    if sight.clear_since_ms is not None:
        return sight.clear_since_ms
    if memory.clear_since_ms is None or now_ms - memory.evaluated_ms > policy.continuity_ms:
        return now_ms
    return memory.clear_since_ms


def _known(memory: Memory, now_ms: int) -> tuple[Memory, tuple[Happened, ...]]:
    if memory.status is not AlertStatus.UNKNOWN:
        return memory, ()
    status = AlertStatus.FIRING if memory.open else AlertStatus.INACTIVE
    return _to(memory, status, now_ms, Happened.KNOWN_AGAIN)


def _while_open(policy: AlertPolicy, memory: Memory, *, now_ms: int) -> tuple[Memory, tuple[Happened, ...]]:
    calm_ms = -1 if memory.clear_since_ms is None else now_ms - memory.clear_since_ms
    if policy.auto_resolve and calm_ms >= policy.window_ms:
        return _to(replace(memory, open=False), AlertStatus.RESOLVED, now_ms, Happened.RESOLVED)
    return memory, ()


def _while_closed(
    policy: AlertPolicy, memory: Memory, sight: Sight, *, now_ms: int
) -> tuple[Memory, tuple[Happened, ...]]:
    cooled = memory.last_fired_ms is None or now_ms - memory.last_fired_ms >= policy.cooldown_ms
    if sight.level is Level.BREACH and cooled:
        raised = replace(memory, open=True, last_fired_ms=now_ms)
        return _to(raised, AlertStatus.FIRING, now_ms, Happened.FIRED)
    if sight.level is not Level.CLEAR:
        return _to(memory, AlertStatus.PENDING, now_ms, Happened.PENDING)
    if memory.status is AlertStatus.PENDING:
        return _to(memory, AlertStatus.INACTIVE, now_ms, Happened.CALMED)
    return memory, ()


def _to(
    memory: Memory, status: AlertStatus, now_ms: int, happened: Happened
) -> tuple[Memory, tuple[Happened, ...]]:
    if memory.status is status:
        return memory, ()
    return replace(memory, status=status, since_ms=now_ms), (happened,)
