"""Plans the next micro-batch before anything is read: bounded, and with an equal share for every stream.

Redis cannot tell the id of the n-th entry, so the end of a bounded range is estimated (`id_counts`). The
bound is approximate. It limits memory and does not affect exactness (0011).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from weir.pipeline.id_counts import IdProbe, count_ids
from weir.pipeline.offsets import Offset, Stream
from weir.telemetry.store import Tail
from weir.telemetry.stream_ids import ORIGIN, StreamId, format_id, is_after, parse_id

AIM = 0.96
"""The part of the bound that a batch aims at: an estimate is off by some hundredths in both directions."""

# From about this many events on, a further read task gains more than its Spark task and its insert cost.
READ_TASK_EVENTS = 15_000


class StreamIds(IdProbe, Protocol):
    """The ids of one stream."""

    def last_until(self, position: str) -> str | None:
        """The last id up to and including `position`."""


ProbeOf = Callable[[Stream], StreamIds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    max_events: int
    max_read_tasks: int


def next_offset(
    start: Offset, tails: Mapping[Stream, Tail], *, bounds: Bounds, probe: ProbeOf, now_ms: int
) -> Offset:
    """The end of the next batch; `start` itself if nothing is new."""
    active = [
        stream for stream, tail in sorted(tails.items()) if is_after(tail.last_id, start.position(stream))
    ]
    if not active:
        return start
    share = shares({stream: tails[stream].length for stream in active}, max_events=bounds.max_events)
    ends: dict[Stream, tuple[str, int]] = {}
    for stream in active:
        ends[stream] = _end(start.position(stream), tails[stream], share=share[stream], ids=probe(stream))
    return Offset(
        at_ms=now_ms,
        positions={**start.positions, **{stream: end for stream, (end, _) in ends.items()}},
        read_tasks=spread(
            {stream: size for stream, (_, size) in ends.items()}, max_read_tasks=bounds.max_read_tasks
        ),
    )


def spread(sizes: Mapping[Stream, int], *, max_read_tasks: int) -> dict[Stream, int]:
    """Assign each stream to a read task."""
    wanted = -(-sum(sizes.values()) // READ_TASK_EVENTS)
    loads = [0] * max(1, min(max_read_tasks, wanted, len(sizes)))
    read_tasks = {}
    # The largest streams first, each to the read task with the least load: the loads come out nearly equal.
    for stream, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        read_task = loads.index(min(loads))
        loads[read_task] += size
        read_tasks[stream] = read_task
    return read_tasks


def shares(lengths: Mapping[Stream, int], *, max_events: int) -> dict[Stream, int]:
    """How many entries to take from each stream: equal shares, and more if others are shorter than theirs."""
    found, left = {}, max_events
    for done, (stream, length) in enumerate(sorted(lengths.items(), key=lambda item: (item[1], item[0]))):
        found[stream] = min(length, max(left // (len(lengths) - done), 1))
        left -= found[stream]
    return found


def _end(start: str, tail: Tail, *, share: int, ids: StreamIds) -> tuple[str, int]:
    """The last id to take from a stream, and the estimated number of entries up to it."""
    if tail.length <= share:
        return tail.last_id, tail.length
    after = _before_next(start, tail)
    last = parse_id(tail.last_id)
    counts = count_ids(ids, after=after, last=last, length=tail.length, wanted=share)
    aim = min(AIM * share, counts.total)
    # Only an entry can be the end, because trimming keeps the end and the next read begins with it.
    end = ids.last_until(format_id(counts.last_within(aim)))
    if end is None or not is_after(end, start):
        # Always advance, even if entries vanished while they were counted.
        end = format_id(max(filter(None, ids.neighbours([after[0]])[0]), default=last))
    return min(end, tail.last_id, key=parse_id), round(aim)


def _before_next(start: str, tail: Tail) -> StreamId:
    """The position right before the next entry; the entries up to the first one may be gone."""
    ms, sequence = parse_id(tail.first_id)
    return max(parse_id(start), (ms, sequence - 1))


def fallback_offset(landed: Mapping[Stream, str]) -> Offset:
    """The start without a checkpoint: after the positions that have landed in the warehouse."""
    return Offset(positions={stream: text for stream, text in landed.items() if text != ORIGIN})
