"""Leases of any queues in one call: grouped by shard and queue, answered in the caller's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import TypeVar

from weir.broker import layout
from weir.broker.keys import queue_ident
from weir.model.handling import error_text
from weir.model.limits import MAX_HANDLER_MS
from weir.model.message import Failure, LeaseRef
from weir.model.names import QueueRef

_NO_TOKEN = bytes(16)
_T = TypeVar("_T")
_RESULT = Struct(">HI")


class Groups:
    """Positions of items, by shard and queue."""

    def __init__(self, queues: Sequence[QueueRef], *, shard_of_queue: Callable[[QueueRef], int]) -> None:
        self._count = len(queues)
        by_queue: dict[QueueRef, list[int]] = {}
        last, positions = None, []
        for position, queue in enumerate(queues):
            if queue is not last:
                last, positions = queue, by_queue.setdefault(queue, [])
            positions.append(position)
        self.shards: dict[int, list[tuple[QueueRef, list[int]]]] = {}
        for queue, places in by_queue.items():
            self.shards.setdefault(shard_of_queue(queue), []).append((queue, places))

    def scatter(self, answers: Mapping[int, Sequence[_T]], *, missing: _T) -> list[_T]:
        """The shards' answers in the order of the items; `missing` where there is none."""
        results = [missing] * self._count
        for shard, settled in answers.items():
            positions = (position for _, places in self.shards[shard] for position in places)
            for position, answer in zip(positions, settled, strict=True):
                results[position] = answer
        return results


def skip(group: list[tuple[QueueRef, list[int]]], count: int) -> list[tuple[QueueRef, list[int]]]:
    """The group without its first `count` items."""
    left = []
    for queue, places in group:
        if count < len(places):
            left.append((queue, places[count:] if count else places))
        count = max(0, count - len(places))
    return left


def token_bytes(token: str) -> bytes:
    """A token as the scripts compare it. Text that is not a token becomes one that matches no lease."""
    try:
        data = bytes.fromhex(token)
    except ValueError:
        return _NO_TOKEN
    return data if len(data) == 16 else _NO_TOKEN


def lease_arguments(leases: Sequence[LeaseRef], groups: list[tuple[QueueRef, list[int]]]) -> list[bytes]:
    arguments: list[bytes] = []
    for queue, places in groups:
        arguments += (queue_ident(queue), _named_leases(leases, places))
    return arguments


def ack_arguments(
    leases: Sequence[LeaseRef],
    results: Sequence[bytes | None],
    groups: list[tuple[QueueRef, list[int]]],
) -> list[bytes]:
    """The leases of each queue, the times of their handlers where they are told, the results to keep."""
    arguments: list[bytes] = []
    for queue, places in groups:
        times = [_handler_time(leases[place]) for place in places]
        told = b"".join(map(layout.HANDLER_TIME.pack, times)) if any(times) else b""
        kept = _kept_results(results, places) if results else b""
        arguments += (queue_ident(queue), _named_leases(leases, places), told, kept)
    return arguments


def _kept_results(results: Sequence[bytes | None], places: list[int]) -> bytes:
    """The results to keep, each after the number of its lease and its length."""
    return b"".join(
        _RESULT.pack(number, len(result)) + result
        for number, place in enumerate(places, start=1)
        if (result := results[place]) is not None
    )


def _named_leases(leases: Sequence[LeaseRef], places: list[int]) -> bytes:
    parts = []
    for place in places:
        lease = leases[place]
        parts.append(layout.id_bytes(lease.message_id))
        parts.append(token_bytes(lease.token))
    return b"".join(parts)


def _handler_time(lease: LeaseRef) -> int:
    """How long the handler ran plus 1; 0 if that is not told."""
    return 0 if lease.handler_ms is None else min(lease.handler_ms, MAX_HANDLER_MS) + 1


def failure_arguments(
    failures: Sequence[Failure], groups: list[tuple[QueueRef, list[int]]], *, chance: Callable[[], float]
) -> list[bytes]:
    arguments: list[bytes] = []
    for queue, places in groups:
        items: list[bytes] = []
        errors: list[bytes] = []
        for place in places:
            failure = failures[place]
            error = error_text(failure.error).encode()
            items.append(
                layout.FAILURE.pack(
                    layout.id_bytes(failure.lease.message_id),
                    token_bytes(failure.lease.token),
                    (0 if failure.delay_ms is None else failure.delay_ms + 1)
                    + (layout.UNCOUNTED if failure.uncounted else 0),
                    int(chance() * (1 << 32)),
                    _handler_time(failure.lease),
                )
            )
            errors += (len(error).to_bytes(2, "big"), error)
        arguments += (queue_ident(queue), b"".join(items), b"".join(errors))
    return arguments
