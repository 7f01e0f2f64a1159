"""Plans an apply: the changes between two apps, and refusals where messages would be lost. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from weir.model.wording import amount, duration
from weir.spec.dump import dumped
from weir.spec.ir import PART_KINDS, AppSpec, EnqueueTo, QueueSpec
from weir.spec.types import ANY, compatible, parse_type


class Effect(StrEnum):
    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The messages and dead letters of a queue at the moment of planning."""

    waiting: int = 0
    running: int = 0
    dead: int = 0
    oldest_age_ms: int = 0

    @property
    def alive(self) -> int:
        return self.waiting + self.running


EMPTY = Holding()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChange:
    """One difference: `queue WebhookIngress / retention / max_depth`, before and after."""

    effect: Effect
    kind: str
    name: str
    path: tuple[str, ...] = ()
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The changes of an apply, the reasons to refuse it, and warnings."""

    changes: tuple[PlannedChange, ...] = ()
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    revision: int = 0
    """The revision of the environment that it was made at; 0 if it was made without one."""

    @property
    def allowed(self) -> bool:
        return not self.refusals


def plan(before: AppSpec | None, after: AppSpec, holdings: Mapping[str, Holding]) -> Plan:
    """Compare the applied app with the new one, and refuse changes that would lose messages."""
    old = before or AppSpec(name=after.name)
    # Compared as dumped data, so that every property takes part without being named here.
    changes = _changes(dumped(old), dumped(after))
    refusals: list[str] = []
    warnings: list[str] = []
    wanted = {queue.name: queue for queue in after.queues}
    for queue in old.queues:
        holding = holdings.get(queue.name, EMPTY)
        if queue.name not in wanted:
            refusals += _removal(queue.name, holding)
        else:
            refusals += _unsafe(queue, wanted[queue.name], holding)
            warnings += _notable(queue, wanted[queue.name], holding)
    warnings += _ageing(old, after, holdings)
    warnings += [
        f"webhook `{change.name}` goes away: its senders will get 401"
        for change in changes
        if change.kind == "webhook" and change.effect is Effect.REMOVE
    ]
    return Plan(changes=tuple(changes), refusals=tuple(refusals), warnings=tuple(warnings))


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[PlannedChange]:
    found: list[PlannedChange] = []
    if before.get("concurrency") != after.get("concurrency"):
        found.append(
            PlannedChange(
                effect=Effect.CHANGE,
                kind="app",
                name=str(after["app"]),
                path=("concurrency",),
                before=before.get("concurrency"),
                after=after.get("concurrency"),
            )
        )
    for plural, kind in PART_KINDS.items():
        old, new = before.get(plural, {}), after.get(plural, {})
        for name in [*old, *(name for name in new if name not in old)]:
            found += _differences(kind, name, old.get(name), new.get(name))
    return found


def _differences(kind: str, name: str, old: Any, new: Any) -> list[PlannedChange]:
    if old is None:
        return [PlannedChange(effect=Effect.ADD, kind=kind, name=name, after=new)]
    if new is None:
        return [PlannedChange(effect=Effect.REMOVE, kind=kind, name=name, before=old)]
    before, after = dict(_leaves(old)), dict(_leaves(new))
    return [
        PlannedChange(
            effect=Effect.CHANGE,
            kind=kind,
            name=name,
            path=path,
            before=before.get(path),
            after=after.get(path),
        )
        for path in [*before, *(path for path in after if path not in before)]
        if before.get(path) != after.get(path)
    ]


def _leaves(data: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if not isinstance(data, Mapping):
        return [(path, data)]
    return [leaf for key, value in data.items() for leaf in _leaves(value, (*path, key))]


def _removal(name: str, holding: Holding) -> list[str]:
    if holding.alive:
        return [
            f"queue `{name}` still holds {amount(holding.alive, 'message')}; drain it before removing it "
            f"(stop what fills it, let the workers finish)"
        ]
    if holding.dead:
        return [
            f"queue `{name}` still has {amount(holding.dead, 'dead letter')}; "
            "redrive or purge them before removing it"
        ]
    return []


def _unsafe(old: QueueSpec, new: QueueSpec, holding: Holding) -> list[str]:
    """Refusals of changes that would break the promises to messages that already wait."""
    if not holding.alive:
        return []
    found = []
    if old.ordering is not new.ordering:
        found.append(
            f"queue `{old.name}` holds {amount(holding.alive, 'message')} in `{old.ordering}` order; "
            f"drain it before changing the order to `{new.ordering}`"
        )
    if holding.oldest_age_ms > new.retention.message_age_ms:
        found.append(
            f"queue `{old.name}` holds messages {duration(holding.oldest_age_ms)} old; `max_age` of "
            f"{duration(new.retention.message_age_ms)} would expire them at once"
        )
    found += _narrowed(old, new, holding)
    return found


def _narrowed(old: QueueSpec, new: QueueSpec, holding: Holding) -> list[str]:
    before = {field.name: field for field in old.message_type}
    found = []
    for field in new.message_type:
        earlier = before.get(field.name)
        if earlier is None:
            # A message that lacks a field of type json is accepted, with null.
            broken = not field.optional and parse_type(field.type) != ANY
        else:
            one, other = parse_type(earlier.type), parse_type(field.type)
            broken = (earlier.optional and not field.optional) or (
                one is not None and other is not None and not compatible(one, other)
            )
        if broken:
            found.append(
                f"queue `{old.name}` holds {amount(holding.alive, 'message')} that may not have "
                f"`{field.name}: {field.type}`; drain it first, or make the field optional"
            )
    return found


def _notable(old: QueueSpec, new: QueueSpec, holding: Holding) -> list[str]:
    found = []
    depth = new.retention.max_depth
    if depth is not None and holding.waiting >= depth:
        found.append(
            f"queue `{old.name}` holds {amount(holding.waiting, 'message')}; "
            f"at `max_depth` {depth} it refuses new ones"
        )
    if new.delivery.max_attempts < old.delivery.max_attempts and holding.alive:
        found.append(
            f"queue `{old.name}`: messages die after {new.delivery.max_attempts} attempts instead of "
            f"{old.delivery.max_attempts}"
        )
    if old.action is not None and new.action is None and not isinstance(old.action, EnqueueTo):
        found.append(f"queue `{old.name}` has nothing that works on its messages any more")
    return found


def _ageing(old: AppSpec, new: AppSpec, holdings: Mapping[str, Holding]) -> list[str]:
    """Warnings about dead letters that will be deleted by age, or sooner than before."""
    before = _kept_for(old)
    return [
        f"queue `{name}` has {amount(holdings[name].dead, 'dead letter')}; those older than "
        f"{duration(age_ms)} will be deleted, as `max_age` of its dead letter queue says"
        for name, age_ms in _kept_for(new).items()
        if holdings.get(name, EMPTY).dead and age_ms < before.get(name, math.inf)
    ]


def _kept_for(app: AppSpec) -> dict[str, int]:
    """How long the dead letters of each queue are kept, for queues with a limit."""
    ages = {queue.name: queue.retention.max_age_ms for queue in app.queues}
    found = {queue.name: ages.get(queue.delivery.dead_letter_queue or "") for queue in app.queues}
    return {name: age_ms for name, age_ms in found.items() if age_ms is not None}


def rendered_plan(found: Plan) -> str:
    """The plan as text for people."""
    signs = {Effect.ADD: "+", Effect.CHANGE: "~", Effect.REMOVE: "-"}
    lines = []
    for change in found.changes:
        where = " / ".join((f"{change.kind} {change.name}", *change.path))
        detail = (
            f": {_shown(change.before)} → {_shown(change.after)}" if change.effect is Effect.CHANGE else ""
        )
        lines.append(f"{signs[change.effect]} {where}{detail}")
    lines += [f"! {warning}" for warning in found.warnings]
    lines += [f"✗ {refusal}" for refusal in found.refusals]
    return "\n".join(lines) if lines else "no changes"


def _shown(value: Any) -> str:
    return "unset" if value is None else str(value)
