"""Offsets as Spark stores them, and the read tasks that follow from a pair of them.

An offset holds the last id that a batch takes from every stream, the time when the batch was planned, and the
read task of each stream. All that a batch does follows from its start and end offset. So a replay reads the
same entries in the same read tasks and inserts them with the same tokens.

    {"at_ms": 1763251200000, "lanes": {"queue": {"0": 0}}, "streams": {"queue": {"0": "1763251199000-3"}}}

Read tasks are stored as `lanes`, because checkpoints of earlier versions spell them so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from weir.telemetry.stream_ids import ORIGIN

Stream = tuple[str, int]
"""A metric and a shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    at_ms: int = 0
    positions: Mapping[Stream, str] = field(default_factory=dict)
    read_tasks: Mapping[Stream, int] = field(default_factory=dict)

    def position(self, stream: Stream) -> str:
        return self.positions.get(stream, ORIGIN)

    def as_json(self) -> dict[str, object]:
        """The form that Spark stores; equal offsets have equal text."""
        return {"at_ms": self.at_ms, "lanes": _nested(self.read_tasks), "streams": _nested(self.positions)}

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Offset:
        return cls(
            at_ms=int(str(value["at_ms"])),
            positions={stream: str(text) for stream, text in _flat(value["streams"])},
            read_tasks={stream: int(str(number)) for stream, number in _flat(value["lanes"])},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRange:
    """The entries of one stream in one batch: after `after`, up to `until`."""

    metric: str
    shard: int
    after: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """The part of a batch that one Spark task reads, adds up and inserts."""

    number: int
    at_ms: int
    ranges: tuple[IdRange, ...]

    def token(self, metric: str) -> str:
        """The name of the read task's insert for one metric."""
        # Only of the ids, without the time or the batch number: those differ when a lost checkpoint is
        # replayed.
        mine = [[r.shard, r.after, r.until] for r in self.ranges if r.metric == metric]
        digest = hashlib.blake2b(json.dumps([metric, mine]).encode(), digest_size=16).hexdigest()
        return f"{metric}-{digest}"


def read_tasks_between(start: Offset, end: Offset) -> list[ReadTask]:
    """The read tasks of a batch, from its offsets alone."""
    found: dict[int, list[IdRange]] = {}
    for stream in sorted(end.positions):
        after, until = start.position(stream), end.position(stream)
        if after != until:
            read_task = found.setdefault(end.read_tasks.get(stream, 0), [])
            read_task.append(IdRange(metric=stream[0], shard=stream[1], after=after, until=until))
    return [
        ReadTask(number=number, at_ms=end.at_ms, ranges=tuple(ranges))
        for number, ranges in sorted(found.items())
    ]


def _nested(values: Mapping[Stream, object]) -> dict[str, dict[str, object]]:
    nested: dict[str, dict[str, object]] = {}
    for (metric, shard), value in sorted(values.items()):
        nested.setdefault(metric, {})[str(shard)] = value
    return nested


def _flat(nested: object) -> Iterable[tuple[Stream, object]]:
    if not isinstance(nested, Mapping):
        raise ValueError("an offset maps metrics to shards")
    for metric, shards in nested.items():
        for shard, value in shards.items():
            yield (str(metric), int(shard)), value
