"""Plans the next micro-batch before anything is read: bounded, and with an equal share for every stream.

Redis cannot tell the id of the n-th entry, so the end of a bounded range is estimated (`id_counts`). The
bound is approximate. It limits memory and does not affect exactness (0011).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from weir.pipeline.id_counts import IdCounts, IdProbe, count_ids
from weir.pipeline.offsets import Offset
from weir.telemetry.store import Tail
from weir.telemetry.stream_ids import ORIGIN, StreamId, format_id, is_after, parse_id
from weir.telemetry.streams import Stream

AIM = 0.96
"""The part of the bound that a batch aims at: an estimate is off by some hundredths in both directions."""

# From about this many events on, a further read task gains more than its Spark task and its insert cost.
READ_TASK_EVENTS = 15_000

# An insert costs 0.1 s of ClickHouse's processor time whatever its size, and merging few rows in Spark costs
# as much again. So the driver joins up to this many rows of a batch (0013).
JOIN_ROWS = 40_000


# Redis' default for `stream-node-max-bytes`.
NODE_BYTES = 4_096
RECORD_BYTES = 128
"""Bytes that count as one event, for metrics whose entries hold many records. A batch of 400,000 events is
then about 300,000 lives: as many rows as a batch of any other metric has."""


class StreamIds(IdProbe, Protocol):
    """The ids of one stream."""

    def last_until(self, position: str) -> str | None:
        """The last id up to and including `position`."""


ProbeOf = Callable[[Stream], StreamIds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    max_events: int
    max_read_tasks: int
    read_task_events: int = READ_TASK_EVENTS
    packed: frozenset[str] = frozenset()
    """Metrics whose entries hold many records: an entry counts as several events, according to its bytes."""

    def weight(self, stream: Stream, tail: Tail) -> int:
        """How many events one entry of a stream counts as."""
        return entry_weight(tail) if stream[0] in self.packed else 1


def entry_weight(tail: Tail) -> int:
    """How many events an entry counts as, by its bytes. Redis keeps entries together in nodes of 4 kB."""
    if tail.bytes:
        return max(1, round(tail.bytes / tail.length / RECORD_BYTES))
    if not tail.nodes:
        return 1
    each = tail.length / tail.nodes
    # An entry that fills a node alone may have up to 16 kB.
    size = NODE_BYTES / each if each > 1.5 else 2 * NODE_BYTES
    return max(1, round(size / RECORD_BYTES))


def next_offset(
    start: Offset, tails: Mapping[Stream, Tail], *, bounds: Bounds, probe: ProbeOf, now_ms: int
) -> Offset:
    """The end of the next batch; `start` itself if nothing is new."""
    active = [
        stream for stream, tail in sorted(tails.items()) if is_after(tail.last_id, start.position(stream))
    ]
    if not active:
        return start
    weights = {stream: bounds.weight(stream, tails[stream]) for stream in active}
    work = {stream: tails[stream].length * weights[stream] for stream in active}
    share = shares(work, max_events=bounds.max_events)
    portions = {
        stream: _portion(
            start.position(stream),
            tails[stream],
            share=max(1, share[stream] // weights[stream]),
            ids=probe(stream),
        )
        for stream in active
    }
    sizes = {stream: portion.size * weights[stream] for stream, portion in portions.items()}
    parts = parts_of(sizes, bounds)
    cut_ids = {stream: portions[stream].cut(count) for stream, count in parts.items() if count > 1}
    pieces = {stream: len(cut_ids.get(stream, ())) + 1 for stream in active}
    read_tasks = spread(sizes, pieces, bounds)
    return Offset(
        at_ms=now_ms,
        positions={**start.positions, **{stream: portion.end for stream, portion in portions.items()}},
        read_tasks={stream: numbers[0] for stream, numbers in read_tasks.items()},
        cuts={
            stream: tuple(zip(cuts, read_tasks[stream][1:], strict=True))
            for stream, cuts in cut_ids.items()
            if cuts
        },
        partitions=_partitions(bounds.max_read_tasks) if any(cut_ids.values()) else 0,
        join_rows=JOIN_ROWS if len({task for tasks in read_tasks.values() for task in tasks}) > 1 else 0,
    )


def parts_of(sizes: Mapping[Stream, int], bounds: Bounds) -> dict[Stream, int]:
    """Into how many ranges to cut each stream, so that the read tasks have about equal work."""
    tasks = max(1, min(bounds.max_read_tasks, sum(sizes.values()) // bounds.read_task_events))
    fair = max(sum(sizes.values()) / tasks, 1)
    # The rows of a cut stream must be merged. So a stream is cut only if it is much more than the work of one
    # task, and into ranges of twice the events that are worth a task.
    least = 2 * bounds.read_task_events
    return {stream: max(1, min(round(size / fair), size // least, tasks)) for stream, size in sizes.items()}


def spread(
    sizes: Mapping[Stream, int], pieces: Mapping[Stream, int], bounds: Bounds
) -> dict[Stream, tuple[int, ...]]:
    """Assign each piece of each stream to a read task."""
    wanted = max(-(-sum(sizes.values()) // bounds.read_task_events), max(pieces.values(), default=1))
    loads = [0.0] * max(1, min(bounds.max_read_tasks, wanted, sum(pieces.values())))
    found: dict[Stream, list[int]] = {stream: [] for stream in sizes}
    each = [(sizes[stream] / pieces[stream], stream) for stream in sizes for _ in range(pieces[stream])]
    # The largest pieces first, each to the read task with the least load: the loads come out nearly equal.
    for size, stream in sorted(each, key=lambda item: (-item[0], item[1])):
        read_task = loads.index(min(loads))
        loads[read_task] += size
        found[stream].append(read_task)
    return {stream: tuple(numbers) for stream, numbers in found.items()}


def _partitions(read_tasks: int) -> int:
    # Merged rows are far fewer than events, and each partition is a further insert.
    return max(1, read_tasks // 2)


def shares(lengths: Mapping[Stream, int], *, max_events: int) -> dict[Stream, int]:
    """How much to take from each stream: equal shares; a shorter stream leaves its rest to the others."""
    found, left = {}, max_events
    for done, (stream, length) in enumerate(sorted(lengths.items(), key=lambda item: (item[1], item[0]))):
        found[stream] = min(length, max(left // (len(lengths) - done), 1))
        left -= found[stream]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Portion:
    """The part of a stream that a batch takes."""

    start: str
    tail: Tail
    ids: StreamIds
    end: str
    size: int
    """An estimate."""
    counts: IdCounts | None = None

    def cut(self, parts: int) -> tuple[str, ...]:
        """The last id of every range but the final one, for a cut into `parts` about equal ranges."""
        counts = self.counts or count_ids(
            self.ids,
            after=_before_next(self.start, self.tail),
            last=parse_id(self.end),
            length=self.size,
            wanted=self.size,
        )
        found = [
            self.ids.last_until(format_id(counts.last_within(min(self.size, counts.total) * number / parts)))
            for number in range(1, parts)
        ]
        # Two cuts may fall on the same id, or on an end of the portion.
        between = {one for one in found if one and is_after(one, self.start) and is_after(self.end, one)}
        return tuple(sorted(between, key=parse_id))


def _portion(start: str, tail: Tail, *, share: int, ids: StreamIds) -> _Portion:
    """The part of a stream that a batch takes: all of it, or about its share."""
    if tail.length <= share:
        return _Portion(start=start, tail=tail, ids=ids, end=tail.last_id, size=tail.length)
    after = _before_next(start, tail)
    last = parse_id(tail.last_id)
    counts = count_ids(ids, after=after, last=last, length=tail.length, wanted=share)
    aim = min(AIM * share, counts.total)
    # Only an entry can be the end, because trimming keeps the end and the next read begins with it.
    end = ids.last_until(format_id(counts.last_within(aim)))
    if end is None or not is_after(end, start):
        # Always advance, even if entries vanished while they were counted.
        end = format_id(max(filter(None, ids.neighbours([after[0]])[0]), default=last))
    end = min(end, tail.last_id, key=parse_id)
    return _Portion(start=start, tail=tail, ids=ids, end=end, size=round(aim), counts=counts)


def _before_next(start: str, tail: Tail) -> StreamId:
    """The position right before the next entry to read; earlier entries may be gone from the stream."""
    ms, sequence = parse_id(tail.first_id)
    return max(parse_id(start), (ms, sequence - 1))


def fallback_offset(landed: Mapping[Stream, str]) -> Offset:
    """The start without a checkpoint: after the positions that have landed in the warehouse."""
    return Offset(positions={stream: text for stream, text in landed.items() if text != ORIGIN})
