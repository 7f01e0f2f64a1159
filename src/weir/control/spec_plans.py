"""Plans of specs and apps, from texts alone. A process of its own computes them, so nobody else waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from weir.control.stored_queues import read_stored_queue, stored_queue
from weir.errors import InvalidInput
from weir.spec.check import PartCheck
from weir.spec.dump import dumped
from weir.spec.ir import AppSpec, DeliverTo, QueueSpec
from weir.spec.language import read_spec, spec_of
from weir.spec.plan import Effect, Holding, Plan, plan

T = TypeVar("T")
TargetCheck = Callable[[str], object]
"""Raises InvalidInput if this installation may never deliver to a URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRules:
    """What specs of this installation must fulfil beyond the language."""

    checks: tuple[PartCheck, ...] = ()
    check_target: TargetCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecText:
    """A spec as it was written; the ending of the file name says in which form."""

    source: str
    file: str = "spec.weir"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a plan depends on, at one revision of the environment. The texts are JSON."""

    revision: int
    spec_revision: int
    spec: str | None
    source: str | None
    concurrency: int | None
    limited_by_spec: bool
    definitions: str
    apps: str
    alert_channels: frozenset[str]
    secrets: frozenset[str]
    users: str
    holdings: Mapping[str, Holding] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Generic[T]):
    """A plan, and what applying it writes."""

    shown: T
    """The plan, as it was asked for."""
    refusals: tuple[str, ...]
    changes: bool
    """Whether anything changes."""
    name: str
    document: str
    """The spec as PostgreSQL keeps it."""
    queues: Mapping[str, str]
    """The definitions that change, as PostgreSQL keeps them."""
    removed: tuple[str, ...]
    reordered: tuple[QueueSpec, ...]
    before: AppSpec | None
    """The parts beside the queues."""
    after: AppSpec
    same_text: bool
    """Whether this very text is applied already."""
    spec_revision: int = 0
    """The revision of the spec that is applied."""
    sets_limit: bool = False
    """Whether the limit of the environment follows `after`."""


def keep(found: Plan) -> Plan:
    """Show a plan as it is."""
    return found


def prepare_spec(text: SpecText, facts: Facts, rules: SpecRules, show: Callable[[Plan], T]) -> Prepared[T]:
    """The plan of a spec."""
    app = read_spec(text.source, file=text.file, more=rules.checks)
    definitions = _definitions(facts)
    current = None if facts.spec is None else spec_of(json.loads(facts.spec))
    before = _before(current, app, definitions, facts)
    # A limit that no spec set stays until a spec sets one.
    limited = app.concurrency is not None or facts.limited_by_spec
    after = app if limited else replace(app, concurrency=facts.concurrency)
    found = plan(before, after, facts.holdings)
    removed = _removed(found)
    found = replace(
        found,
        revision=facts.revision,
        refusals=(
            *found.refusals,
            *_unreachable(app, rules.check_target),
            *_in_other_channels(app, current, facts),
            *_owned_by_apps(app, facts),
            *_needed(removed, app, current, facts),
        ),
        warnings=(*found.warnings, *_unheard(app, facts), *_without_secrets(app, facts)),
    )
    prepared = _prepared(
        show(found),
        found,
        app,
        before=current,
        definitions=definitions,
        removed=removed,
        same_text=facts.source == text.source,
    )
    return replace(prepared, spec_revision=facts.spec_revision, sets_limit=limited)


def prepare_app(text: SpecText, facts: Facts, name: str, show: Callable[[Plan], T]) -> Prepared[T]:
    """The plan of what an app declares in its code. A queue that it declares no more stays."""
    app = read_spec(text.source, file=text.file)
    if app.name != name:
        raise InvalidInput(f"the spec is of the app `{app.name}`, and the path names `{name:.100}`")
    _check_parts(app)
    declared = {one: spec_of(spec) for one, spec in json.loads(facts.apps).items()}
    known = declared.get(app.name)
    definitions = _definitions(facts)
    concerned = {queue.name for queue in (*(known.queues if known else ()), *app.queues)}
    old = tuple(spec for queue, spec in definitions.items() if queue in concerned)
    wanted = {queue.name for queue in app.queues}
    left = [queue.name for queue in old if queue.name not in wanted]
    kept = tuple(queue for queue in old if queue.name in wanted)
    found = plan(replace(known or AppSpec(name=app.name), queues=kept), app, facts.holdings)
    found = replace(
        found,
        revision=facts.revision,
        refusals=(*found.refusals, *_owned_elsewhere(app, declared, facts)),
        warnings=(
            *found.warnings,
            *(f"queue `{one}` is not declared any more; it stays until `weir queue delete`" for one in left),
        ),
    )
    return _prepared(
        show(found), found, app, before=known, definitions=definitions, removed=(), same_text=known == app
    )


def _prepared(
    shown: T,
    found: Plan,
    app: AppSpec,
    *,
    before: AppSpec | None,
    definitions: Mapping[str, QueueSpec],
    removed: tuple[str, ...],
    same_text: bool,
) -> Prepared[T]:
    changed = [queue for queue in app.queues if definitions.get(queue.name) != queue]
    return Prepared(
        shown=shown,
        refusals=found.refusals,
        changes=bool(found.changes),
        name=app.name,
        document=json.dumps(dumped(app)),
        queues={queue.name: stored_queue(queue) for queue in changed},
        removed=removed,
        reordered=tuple(
            queue
            for queue in changed
            if queue.name in definitions and definitions[queue.name].ordering is not queue.ordering
        ),
        before=None if before is None else replace(before, queues=()),
        after=replace(app, queues=()),
        same_text=same_text,
    )


def _definitions(facts: Facts) -> dict[str, QueueSpec]:
    return {name: read_stored_queue(stored) for name, stored in json.loads(facts.definitions).items()}


def _before(
    current: AppSpec | None, app: AppSpec, definitions: Mapping[str, QueueSpec], facts: Facts
) -> AppSpec:
    """The app that is applied now. Its queues and limit are as they hold: the API may change them."""
    concerned = {queue.name for queue in (*app.queues, *(current.queues if current else ()))}
    queues = tuple(spec for name, spec in definitions.items() if name in concerned)
    return replace(current or AppSpec(name=app.name), queues=queues, concurrency=facts.concurrency)


def _removed(found: Plan) -> tuple[str, ...]:
    return tuple(one.name for one in found.changes if one.kind == "queue" and one.effect is Effect.REMOVE)


def _unreachable(app: AppSpec, check_target: TargetCheck | None) -> list[str]:
    """Refusals for URLs that this installation never delivers to. Otherwise each message would fail."""
    refusals = []
    for queue in app.queues:
        if check_target is None or not isinstance(queue.action, DeliverTo):
            continue
        try:
            check_target(queue.action.url)
        except InvalidInput as refused:
            refusals.append(f"queue `{queue.name}` delivers to `{queue.action.url:.200}`: {refused}")
    return refusals


def _owned_by_apps(app: AppSpec, facts: Facts) -> list[str]:
    """Refusals for queues and schedules that an app declares in its code."""
    owned = {
        (kind, name): owner
        for owner, spec in json.loads(facts.apps).items()
        for kind, plural in (("queue", "queues"), ("schedule", "schedules"))
        for name in spec.get(plural, {})
    }
    return [
        f"{kind} `{name}` belongs to the app `{owned[kind, name]}`; use another name, or remove it there"
        for kind, name in _parts_in_code(app)
        if (kind, name) in owned
    ]


def _owned_elsewhere(app: AppSpec, declared: Mapping[str, AppSpec], facts: Facts) -> list[str]:
    """Refusals for queues and schedules that belong to the spec or to another app."""
    spec = None if facts.spec is None else spec_of(json.loads(facts.spec))
    owners: dict[tuple[str, str], str] = {}
    for other in (*declared.values(), *(() if spec is None else (spec,))):
        if other is spec or other.name != app.name:
            whose = f"the {'spec' if other is spec else 'app'} `{other.name}`"
            owners |= dict.fromkeys(_parts_in_code(other), whose)
    return [
        f"{kind} `{name}` belongs to {owners[kind, name]}; use another name, or take it out there"
        for kind, name in _parts_in_code(app)
        if (kind, name) in owners
    ]


def _parts_in_code(app: AppSpec) -> list[tuple[str, str]]:
    """The parts that an app may declare in its code, by kind and name."""
    return [
        *(("queue", one.name) for one in app.queues),
        *(("schedule", one.name) for one in app.schedules),
    ]


def _needed(removed: Iterable[str], app: AppSpec, current: AppSpec | None, facts: Facts) -> list[str]:
    """Refusals to remove queues that something beside this spec uses."""
    own = {("channel", one.id) for one in (current.channels if current else ())}
    replaced = {("queue", name) for name in (*removed, *(queue.name for queue in app.queues))}
    users: dict[str, list[dict[str, str]]] = {}
    for user in json.loads(facts.users):
        key = (user["kind"], user["name"])
        if user["owner"] != "spec" and key not in own and key not in replaced:
            users.setdefault(user["queue"], []).append(user)
    return [in_use(name, users[name][0]) for name in removed if name in users]


def _in_other_channels(app: AppSpec, current: AppSpec | None, facts: Facts) -> list[str]:
    """Refusals for consumers whose queue a channel beside this spec has."""
    own = {channel.id for one in (app, current) if one is not None for channel in one.channels}
    others = {
        user["queue"]: user["name"]
        for user in json.loads(facts.users)
        if user["kind"] == "channel" and user["name"] not in own
    }
    return [
        f"the queue `{consumer.queue}` belongs to a consumer of the channel `{others[consumer.queue]}`; "
        f"give consumer `{consumer.id}` of channel `{channel.id}` another queue"
        for channel in app.channels
        for consumer in channel.consumers
        if consumer.queue in others
    ]


def in_use(queue: str, user: Mapping[str, str]) -> str:
    """Why a queue cannot be removed, and what to do."""
    return (
        f"queue `{queue}` is used by the {user['kind']} `{user['name']}` ({user['role']}); change that first"
    )


def _unheard(app: AppSpec, facts: Facts) -> list[str]:
    """Warnings for alert channels that do not exist: their secrets are not part of the spec."""
    return [
        f"alert `{alert.name}` names the alert channel `{channel}`, which does not exist: "
        "nobody will be notified until `weir alert-channel create` makes it"
        for alert in app.alerts
        for channel in alert.channels
        if channel not in facts.alert_channels
    ]


def _without_secrets(app: AppSpec, facts: Facts) -> list[str]:
    """Warnings for secrets that the environment does not have."""
    return [
        f"{part} names the secret `{name}`, which is not stored (a variable of the server is not read): "
        f"{effect} until `weir secret set {name}` stores it"
        for part, effect, names in _secrets_by_part(app)
        for name in names
        if facts.secrets.isdisjoint(names)
    ]


def _secrets_by_part(app: AppSpec) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Each part that names secrets, and what happens while it has none of them."""
    for webhook in app.webhooks:
        if webhook.verification is not None:
            yield (
                f"webhook `{webhook.name}`",
                "everything sent to it is refused",
                webhook.verification.secrets,
            )
    for queue in app.queues:
        if isinstance(queue.action, DeliverTo):
            yield f"queue `{queue.name}`", "nothing is delivered", queue.action.secrets


def _check_parts(app: AppSpec) -> None:
    """An app in code has queues and schedules; everything else belongs to a spec."""
    if app.webhooks or app.channels or app.alerts or app.concurrency is not None:
        raise InvalidInput(
            "an app declares queues and schedules only; put webhooks, channels, alerts and the concurrency "
            "of the environment into a spec"
        )
    acting = next((queue.name for queue in app.queues if queue.action is not None), None)
    if acting is not None:
        raise InvalidInput(f"queue `{acting}` of an app has an action; its tasks are the action")
