"""Offsets as Spark stores them, and the read tasks that follow from a pair of them.

An offset holds the last id that a batch takes from every stream, the time when the batch was planned, and the
read task of each stream. A long stream can be cut into several ranges with a read task each; then the offset
holds the cuts, and the number of partitions in which the rows of cut streams are merged. All that a batch
does follows from its start and end offset. So a replay reads the same entries in the same read tasks and
inserts them with the same tokens.

    {"at_ms": 1763251200000, "lanes": {"queue": {"0": 0}}, "streams": {"queue": {"0": "1763251199000-3"}},
     "split": {"version": 2, "join_rows": 40000, "partitions": 1,
               "cuts": {"queue": {"0": [["1763251190000-7", 1]]}}}}

Read tasks are stored as `lanes`, because checkpoints of earlier versions spell them so. `lanes` names the
read task of a stream's first range, and each cut the one of the range behind it. A batch of one task has no
`split`, so such offsets keep the text of earlier versions. Up to `join_rows` rows of several tasks are joined
into one insert; in batches that were planned before version 2 of `split`, each task inserts its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from weir.errors import Misconfigured
from weir.telemetry.stream_ids import ORIGIN
from weir.telemetry.streams import Stream

SPLIT_VERSION = 2

Cut = tuple[str, int]
"""The last id before a cut, and the read task of the range behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    at_ms: int = 0
    positions: Mapping[Stream, str] = field(default_factory=dict)
    read_tasks: Mapping[Stream, int] = field(default_factory=dict)
    cuts: Mapping[Stream, tuple[Cut, ...]] = field(default_factory=dict)
    partitions: int = 0
    """Partitions in which the rows of cut streams are merged; 0 without cuts."""
    join_rows: int = 0
    """The most rows of several tasks that become one insert; 0 with one task, and before version 2."""

    def position(self, stream: Stream) -> str:
        return self.positions.get(stream, ORIGIN)

    def as_json(self) -> dict[str, object]:
        """The form that Spark stores; equal offsets have equal text."""
        text: dict[str, object] = {
            "at_ms": self.at_ms,
            "lanes": _nested(self.read_tasks),
            "streams": _nested(self.positions),
        }
        if self.cuts or self.join_rows:
            cuts = {stream: [list(cut) for cut in mine] for stream, mine in self.cuts.items()}
            joined = {"version": 2, "join_rows": self.join_rows} if self.join_rows else {"version": 1}
            text["split"] = {**joined, "partitions": self.partitions, "cuts": _nested(cuts)}
        return text

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Offset:
        split = value.get("split") or {}
        if not isinstance(split, Mapping) or int(split.get("version", 1)) > SPLIT_VERSION:
            raise Misconfigured("a newer Weir planned this batch; start the pipeline of that version")
        return cls(
            at_ms=int(str(value["at_ms"])),
            positions={stream: str(text) for stream, text in _flat(value["streams"])},
            read_tasks={stream: int(str(number)) for stream, number in _flat(value["lanes"])},
            cuts={stream: _cuts(cuts) for stream, cuts in _flat(split.get("cuts", {}))},
            partitions=int(split.get("partitions", 0)),
            join_rows=int(split.get("join_rows", 0)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRange:
    """Entries of one stream in one batch: after `after`, up to `until`."""

    metric: str
    shard: int
    after: str
    until: str
    whole: bool = True
    """True if these are all entries of the stream in this batch; else other read tasks read the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """The part of a batch that one Spark task reads and adds up."""

    number: int
    at_ms: int
    ranges: tuple[IdRange, ...]

    def token(self, metric: str, *, whole: bool = True) -> str:
        """The name under which the read task stores one metric: of its whole streams, or of its cut ones."""
        # The token follows only from the ids. The time and the batch number would differ when a lost
        # checkpoint is replayed.
        mine = [[r.shard, r.after, r.until] for r in self.ranges if r.metric == metric and r.whole == whole]
        return _token(metric, mine)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The read tasks of a batch, and how their rows are joined or merged."""

    read_tasks: tuple[ReadTask, ...]
    partitions: int
    join_rows: int = 0

    @property
    def cut_metrics(self) -> tuple[str, ...]:
        """The metrics that have a cut stream."""
        return tuple(sorted({piece.metric for piece in self._cut}))

    @property
    def hand_rows(self) -> int:
        """The most rows of a metric that each read task hands on to be joined."""
        return self.join_rows // max(len(self.read_tasks), 1)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that have a stream in the batch."""
        return tuple(sorted({piece.metric for piece in self._pieces}))

    def join_token(self, metric: str) -> str:
        """The name of the one insert that joins the rows of several tasks for a metric."""
        mine = sorted([r.shard, r.after, r.until] for r in self._pieces if r.metric == metric)
        return _token(metric, ["join", *mine])

    def merge_token(self, metric: str) -> str:
        """The name under which the batch stores a metric's cut streams."""
        mine = sorted([r.shard, r.after, r.until] for r in self._cut if r.metric == metric)
        return _token(metric, ["merge", self.partitions, *mine])

    @property
    def _pieces(self) -> list[IdRange]:
        return [piece for task in self.read_tasks for piece in task.ranges]

    @property
    def _cut(self) -> list[IdRange]:
        return [piece for piece in self._pieces if not piece.whole]


def plan_between(start: Offset, end: Offset) -> BatchPlan:
    """The plan of a batch, which follows from its offsets alone."""
    found: dict[int, list[IdRange]] = {}
    for stream in sorted(end.positions):
        after, until = start.position(stream), end.position(stream)
        if after != until:
            for number, piece in _ranges(stream, after, until, end):
                found.setdefault(number, []).append(piece)
    read_tasks = (
        ReadTask(number=number, at_ms=end.at_ms, ranges=tuple(ranges))
        for number, ranges in sorted(found.items())
    )
    return BatchPlan(read_tasks=tuple(read_tasks), partitions=end.partitions, join_rows=end.join_rows)


def _ranges(stream: Stream, after: str, until: str, end: Offset) -> Iterable[tuple[int, IdRange]]:
    """The ranges of a stream with the numbers of their read tasks."""
    number, cuts = end.read_tasks.get(stream, 0), end.cuts.get(stream, ())
    for cut, behind in (*cuts, (until, -1)):
        yield number, IdRange(metric=stream[0], shard=stream[1], after=after, until=cut, whole=not cuts)
        after, number = cut, behind


def _token(metric: str, content: Sequence[object]) -> str:
    digest = hashlib.blake2b(json.dumps([metric, content]).encode(), digest_size=16).hexdigest()
    return f"{metric}-{digest}"


def _cuts(value: object) -> tuple[Cut, ...]:
    if not isinstance(value, Sequence):
        raise ValueError("the cuts of a stream are a list")
    return tuple((str(position), int(number)) for position, number in value)


def _nested(values: Mapping[Stream, object]) -> dict[str, dict[str, object]]:
    nested: dict[str, dict[str, object]] = {}
    for (metric, shard), value in sorted(values.items(), key=lambda item: item[0]):
        nested.setdefault(metric, {})[str(shard)] = value
    return nested


def _flat(nested: object) -> Iterable[tuple[Stream, object]]:
    if not isinstance(nested, Mapping):
        raise ValueError("an offset maps metrics to shards")
    for metric, shards in nested.items():
        for shard, value in shards.items():
            yield (str(metric), int(shard)), value
