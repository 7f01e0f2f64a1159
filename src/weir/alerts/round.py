"""One evaluation, thought through: from rules, memories and figures to what changes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from weir.alerts.judge import Seen, Trustworthiness, judge
from weir.alerts.machine import AlertPolicy, Happened, Level, Memory, Sight, is_forgettable, step
from weir.alerts.measure import Measured
from weir.alerts.metrics import CATALOGUE, About, Metric
from weir.alerts.rule import Rule
from weir.model.names import QueueRef
from weir.warehouse.reading.windows import Levels

Key = tuple[str, str]
"""A rule's id and a queue's name; the name is empty for rules about no queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A memory and the alert that it opened, if that is still open."""

    memory: Memory
    alert_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertChange:
    """What one evaluation does to one rule about one queue."""

    rule: Rule
    queue: QueueRef | None
    before: Kept | None
    memory: Memory
    sight: Sight
    happened: tuple[Happened, ...]
    forget: bool

    @property
    def key(self) -> Key:
        return self.rule.id, self.queue.queue if self.queue else ""

    @property
    def worth_keeping(self) -> bool:
        """Whether the memory says more than it said before, its time aside."""
        if self.forget:
            return False
        if self.before is None or self.happened:
            return True
        return replace(self.before.memory, evaluated_ms=0) != replace(self.memory, evaluated_ms=0) or (
            self.memory.open or self.memory.clear_since_ms is not None
        )


def policy_of(rule: Rule) -> AlertPolicy:
    draft = rule.draft
    return AlertPolicy(
        window_ms=draft.window_ms, cooldown_ms=draft.cooldown_ms, auto_resolve=draft.auto_resolve
    )


def evaluate(
    rules: Sequence[Rule],
    kept: Mapping[Key, Kept],
    measured: Measured,
    *,
    live: Mapping[QueueRef, Mapping[Metric, float]],
) -> Iterator[AlertChange]:
    """Every change of one evaluation; rules about which nothing is remembered or seen yield none.

    `live` are the levels right now of queues that are watched by name and of which telemetry says nothing.
    """
    remembered: dict[str, list[str]] = {}
    for rule_id, name in kept:
        remembered.setdefault(rule_id, []).append(name)
    for rule in rules:
        trust = measured.trust(rule)
        for queue in _subjects(rule, measured, remembered.get(rule.id, ())):
            change = _change(rule, queue, kept, measured, live, trust=trust)
            if change.before is not None or not change.forget:
                yield change


def _subjects(rule: Rule, measured: Measured, remembered: Sequence[str]) -> Sequence[QueueRef | None]:
    if CATALOGUE[rule.draft.metric].about is not About.QUEUE:
        return [None]
    if rule.draft.queue is not None:
        return [rule.environment.queue(rule.draft.queue)]
    known = {rule.environment.queue(name) for name in remembered if name}
    return sorted(measured.queues_of(rule) | known, key=lambda queue: queue.queue)


def _change(
    rule: Rule,
    queue: QueueRef | None,
    kept: Mapping[Key, Kept],
    measured: Measured,
    live: Mapping[QueueRef, Mapping[Metric, float]],
    *,
    trust: Trustworthiness,
) -> AlertChange:
    before = kept.get((rule.id, queue.queue if queue else ""))
    policy = policy_of(rule)
    if trust.stale:
        sight = Sight(level=Level.UNKNOWN)
    else:
        seen = _seen(rule, queue, measured, live)
        sight = judge(rule.draft, seen, trust=trust, now_ms=measured.now_ms)
    memory, happened = step(policy, before.memory if before else Memory(), sight, now_ms=measured.now_ms)
    return AlertChange(
        rule=rule,
        queue=queue,
        before=before,
        memory=memory,
        sight=sight,
        happened=happened,
        forget=is_forgettable(policy, memory, now_ms=measured.now_ms),
    )


def _seen(
    rule: Rule, queue: QueueRef | None, measured: Measured, live: Mapping[QueueRef, Mapping[Metric, float]]
) -> Seen:
    seen = measured.seen(rule, queue)
    if queue is not None and queue in live and isinstance(seen, Levels) and seen.high == 0:
        level = live[queue][rule.draft.metric]
        return Levels(low=level, high=level, now=level)
    return seen
