"""Dead letter queues: the fields of a copy of a death, and the checks of the queue that receives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from weir.errors import InvalidInput
from weir.spec.ir import QueueSpec, chain_of
from weir.spec.types import ANY, INT, STRING, TIME, Type, compatible, parse_type

DEATH: Mapping[str, Type] = {"original_message": ANY, "failed_at": TIME, "error": STRING, "attempts": INT}
"""The fields of a copy of a death."""


def unfit_fields(given: Mapping[str, Type], queue: QueueSpec) -> list[str]:
    """The fields of the queue's message type, as written, that a message with `given` fields does not fit."""
    return [
        f"{field.name}: {field.type}"
        for field in queue.message_type
        if not _fills(given.get(field.name), parse_type(field.type) or ANY, optional=field.optional)
    ]


def _fills(given: Type | None, wanted: Type, *, optional: bool) -> bool:
    return optional if given is None else compatible(given, wanted)


def written_types(fields: Mapping[str, Type]) -> str:
    """The fields with their types, for an error message."""
    return ", ".join(f"`{name}: {kind}`" for name, kind in fields.items())


def ways_out(queue: QueueSpec) -> list[str]:
    """The queues that messages of a queue go to: the next one of a chain, and the dead letter queue."""
    chain = chain_of(queue.action)
    return [
        name
        for name in (None if chain is None else chain.queue, queue.delivery.dead_letter_queue)
        if name is not None
    ]


def circles(queues: Mapping[str, QueueSpec]) -> Iterator[list[str]]:
    """Each circle of queues, with its first name again at the end."""
    left: set[str] = set()
    for start in queues:
        # A depth-first search without recursion, because a chain may be long. The dictionary is an ordered
        # set.
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


MAX_SPELLED = 8
"""Queues of a circle that an error names."""


def spelled_circle(circle: list[str]) -> str:
    names = [f"`{name}`" for name in circle]
    if len(names) > MAX_SPELLED:
        names[MAX_SPELLED - 1 : -1] = [f"({len(names) - MAX_SPELLED} more)"]
    return f"messages would go round for ever: {' → '.join(names)}"


def check_dead_letter_queue(queue: QueueSpec, others: Mapping[str, QueueSpec]) -> None:
    """Refuse a dead letter queue that does not exist, leads back to the queue, or does not fit a death."""
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
