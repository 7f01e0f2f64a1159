"""One evaluation: from rules, memories and measurements to changes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from weir.alerts.alert_metrics import CATALOGUE, About, Metric
from weir.alerts.judge import judge
from weir.alerts.machine import AlertPolicy, Level, Memory, Observation, Transition, is_forgettable, step
from weir.alerts.measure import Measured
from weir.alerts.rule import AlertRule
from weir.model.names import QueueRef
from weir.warehouse.reading.windows import Levels

log = structlog.get_logger("weir.alerts")

LiveLevels = Mapping[QueueRef, Mapping[Metric, float] | None]
"""The levels in Redis of queues with a rule or an open alert but no recent telemetry; None while Redis is
away."""
Key = tuple[str, str]
"""A rule's id and a queue's name; the name is empty for a rule that is not about a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMemory:
    """A memory, and the alert that it opened if that is still open."""

    memory: Memory
    alert_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertChange:
    """The result of one evaluation for one rule and one queue."""

    rule: AlertRule
    queue: QueueRef | None
    before: StoredMemory | None
    memory: Memory
    observation: Observation
    transitions: tuple[Transition, ...]
    forget: bool

    @property
    def key(self) -> Key:
        return self.rule.id, self.queue.queue if self.queue else ""

    @property
    def worth_keeping(self) -> bool:
        """Whether the memory must be stored: it changed in more than its time, or its time matters later."""
        if self.forget:
            return False
        if self.before is None or self.transitions:
            return True
        return replace(self.before.memory, evaluated_ms=0) != replace(self.memory, evaluated_ms=0) or (
            self.memory.open or self.memory.clear_since_ms is not None
        )


def policy_of(rule: AlertRule, *, continuity_ms: int) -> AlertPolicy:
    draft = rule.draft
    return AlertPolicy(
        window_ms=draft.window_ms,
        cooldown_ms=draft.cooldown_ms,
        auto_resolve=draft.auto_resolve,
        continuity_ms=continuity_ms,
    )


def evaluate(
    rules: Sequence[AlertRule],
    memories: Mapping[Key, StoredMemory],
    measured: Measured,
    *,
    live: LiveLevels,
    continuity_ms: int,
) -> Iterator[AlertChange]:
    """Every change of one evaluation. A rule without a memory and without a measurement yields none.

    A rule that cannot be judged is unknown; the others are judged all the same.
    """
    remembered: dict[str, list[str]] = {}
    for rule_id, name in memories:
        remembered.setdefault(rule_id, []).append(name)
    for rule in rules:
        policy = policy_of(rule, continuity_ms=continuity_ms)
        for queue in _subjects(rule, measured, remembered.get(rule.id, ())):
            change = _change(rule, queue, memories, measured, live, policy=policy)
            if change.before is not None or not change.forget:
                yield change


def _subjects(rule: AlertRule, measured: Measured, remembered: Sequence[str]) -> Sequence[QueueRef | None]:
    if CATALOGUE[rule.draft.metric].about is not About.QUEUE:
        return [None]
    if rule.draft.queue is not None:
        return [rule.environment.queue(rule.draft.queue)]
    known = {rule.environment.queue(name) for name in remembered if name}
    return sorted(measured.queues_of(rule) | known, key=lambda queue: queue.queue)


def _change(
    rule: AlertRule,
    queue: QueueRef | None,
    memories: Mapping[Key, StoredMemory],
    measured: Measured,
    live: LiveLevels,
    *,
    policy: AlertPolicy,
) -> AlertChange:
    before = memories.get((rule.id, queue.queue if queue else ""))
    try:
        observation = _observation(rule, queue, measured, live)
    except Exception:
        log.exception("an alert rule could not be judged", rule=rule.draft.name, id=rule.id)
        observation = Observation(level=Level.UNKNOWN)
    memory, transitions = step(
        policy, before.memory if before else Memory(), observation, now_ms=measured.now_ms
    )
    return AlertChange(
        rule=rule,
        queue=queue,
        before=before,
        memory=memory,
        observation=observation,
        transitions=transitions,
        forget=is_forgettable(policy, memory, now_ms=measured.now_ms),
    )


def _observation(
    rule: AlertRule, queue: QueueRef | None, measured: Measured, live: LiveLevels
) -> Observation:
    trust = measured.trust(rule)
    if trust.stale:
        return Observation(level=Level.UNKNOWN)
    measurement = measured.measurement_of(rule, queue)
    # Live levels count only where telemetry has nothing: telemetry knows the whole window, Redis only now.
    if queue is not None and queue in live and isinstance(measurement, Levels) and measurement.high == 0:
        levels = live[queue]
        if levels is None:
            return Observation(level=Level.UNKNOWN)
        level = levels[rule.draft.metric]
        measurement = Levels(low=level, high=level, now=level)
    return judge(rule.draft, measurement, trust=trust, now_ms=measured.now_ms)
