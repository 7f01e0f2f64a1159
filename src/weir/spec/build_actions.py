"""Syntax tree to IR, second part: the actions of queues and webhooks."""

from __future__ import annotations

from dataclasses import replace

from weir.spec.ir import Action, DeliverTo, EnqueueTo, MapToCommand
from weir.spec.read import SpecSection, read_name
from weir.spec.syntax import Scalar, SyntaxEntry, ValueKind


def read_action(section: SpecSection) -> Action | None:
    """The action for each message: a command, another queue or both, or an endpoint."""
    command, chain, target = read_map_to(section), _enqueue_to(section), _deliver_to(section)
    if target is not None and (command or chain):
        section.notes.add(
            f"a {section.what} that has `deliver` has neither `map_to` nor `enqueue`; keep one",
            section.notes.spans[(*section.path, "deliver")],
        )
    if command is not None and chain is not None:
        return replace(command, then=chain)
    return command or chain or target


def read_map_to(section: SpecSection) -> MapToCommand | None:
    entry = section.take("map_to")
    if entry is None:
        return None
    value = entry.value
    if not isinstance(value, Scalar) or value.kind is not ValueKind.PATH:
        section.notes.add(
            "`map_to` names a command; write `map_to: command Entity.Name { … }`", entry.key_span
        )
        return None
    entity, _, command = str(value.value).partition(".")
    return MapToCommand(entity=entity, command=command, inputs=_inputs(entry, section, "map_to"))


def _enqueue_to(section: SpecSection) -> EnqueueTo | None:
    entry = section.take("enqueue")
    if entry is None:
        return None
    if not isinstance(entry.value, Scalar):
        section.notes.add("`enqueue` names a queue; write `enqueue: OtherQueue`", entry.key_span)
        return None
    queue = read_name(entry.value, what="queue", notes=section.notes)
    return None if queue is None else EnqueueTo(queue=queue, inputs=_inputs(entry, section, "enqueue"))


def _deliver_to(parent: SpecSection) -> DeliverTo | None:
    entry = parent.take("deliver")
    if entry is None:
        return None
    if not isinstance(entry.value, Scalar):
        parent.notes.add("`deliver` names an endpoint; write `deliver: https://host/path`", entry.key_span)
        return None
    section = SpecSection(
        entry.body or (), what="delivery", path=(*parent.path, "deliver"), notes=parent.notes
    )
    secrets = section.secret_names()
    timeout = section.duration_ms("timeout", at_least_ms=100)
    section.finish()
    return DeliverTo(
        url=str(entry.value.value),
        secrets=secrets,
        timeout_ms=DeliverTo(url="").timeout_ms if timeout is None else timeout,
    )


def _inputs(entry: SyntaxEntry, section: SpecSection, key: str) -> dict[str, str]:
    inputs: dict[str, str] = {}
    for item in entry.body or ():
        if not isinstance(item.value, Scalar) or item.value.kind not in (
            ValueKind.EXPRESSION,
            ValueKind.STRING,
        ):
            section.notes.add(f"input `{item.key}` needs an expression", item.key_span)
            continue
        if item.key in inputs:
            section.notes.add(f"input `{item.key}` stands twice; keep one", item.key_span)
        section.notes.spans[(*section.path, key, item.key)] = item.value.span
        inputs[item.key] = str(item.value.value)
    return inputs
