"""Dead letter queues: what a death gives as a message, and what must hold of the queue that receives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from weir.errors import InvalidInput
from weir.spec.ir import EnqueueTo, QueueSpec
from weir.spec.types import ANY, INT, STRING, TIME, Type, compatible, parse_type

DEATH: Mapping[str, Type] = {"original_message": ANY, "failed_at": TIME, "error": STRING, "attempts": INT}
"""The fields of a death that arrives in a dead letter queue."""


def unfit_fields(given: Mapping[str, Type], queue: QueueSpec) -> list[str]:
    """The fields of a message type, as they are written, that a message with these fields cannot fill."""
    return [
        f"{field.name}: {field.type}"
        for field in queue.message_type
        if not _fills(given.get(field.name), parse_type(field.type) or ANY, optional=field.optional)
    ]


def _fills(given: Type | None, wanted: Type, *, optional: bool) -> bool:
    return optional if given is None else compatible(given, wanted)


def written_types(fields: Mapping[str, Type]) -> str:
    """The fields and their types, as a message to people lists them."""
    return ", ".join(f"`{name}: {kind}`" for name, kind in fields.items())


def ways_out(queue: QueueSpec) -> list[str]:
    """Where messages go from a queue by themselves: into the next one of a chain, and when they die."""
    chained = queue.action.queue if isinstance(queue.action, EnqueueTo) else None
    return [name for name in (chained, queue.delivery.dead_letter_queue) if name is not None]


def circles(queues: Mapping[str, QueueSpec]) -> Iterator[list[str]]:
    """Each way by which messages come back to where they were; the first name stands at its end again."""
    left: set[str] = set()
    for start in queues:
        # A dictionary is a path that is asked often whether a name is on it.
        path: dict[str, None] = {}
        turns = [iter([start])]
        while turns:
            name = next(turns[-1], None)
            if name is None:
                turns.pop()
                if path:
                    left.add(path.popitem()[0])
            elif name in path:
                walked = list(path)
                yield [*walked[walked.index(name) :], name]
            elif name in queues and name not in left:
                path[name] = None
                turns.append(iter(ways_out(queues[name])))


def spelled_circle(circle: list[str]) -> str:
    return f"messages would go round for ever: {' → '.join(f'`{name}`' for name in circle)}"


def check_dead_letter_queue(queue: QueueSpec, others: Mapping[str, QueueSpec]) -> None:
    """Refuse a dead letter queue that is not there, that leads back, or that no death would fit."""
    target = queue.delivery.dead_letter_queue
    if target is None:
        return
    known = {**others, queue.name: queue}
    if target not in known:
        raise InvalidInput(f"there is no queue `{target}` for the dead letters; define it first")
    for circle in circles(known):
        if queue.name in circle:
            raise InvalidInput(spelled_circle(circle))
    if unfit := unfit_fields(DEATH, known[target]):
        raise InvalidInput(f"queue `{target}` needs `{unfit[0]}`; a death gives {written_types(DEATH)}")
