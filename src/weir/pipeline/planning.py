"""Plans the next micro-batch before anything is read: bounded, and with an equal share for every stream.

Redis cannot tell the id of the n-th entry, so the end of a bounded range is estimated from the density of ids
at its two ends. The bound is approximate. It limits memory and does not affect exactness (0011).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from weir.pipeline.offsets import Offset, Stream
from weir.telemetry.store import Tail
from weir.telemetry.stream_ids import ORIGIN, format_id, is_after, parse_id

PROBE = 512
"""How many ids tell the density around a position."""
STEPS = 24
"""How many bursts of a stream one batch may span."""

# From about this many events on, a further read task gains more than its Spark task and its insert cost.
READ_TASK_EVENTS = 15_000


class IdProbe(Protocol):
    """Reads the ids around a position of one stream."""

    def ids_after(self, stream: Stream, position: str, *, count: int) -> list[str]: ...

    def ids_until(self, stream: Stream, position: str, *, count: int) -> list[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    max_events: int
    max_read_tasks: int


def next_offset(
    start: Offset, tails: Mapping[Stream, Tail], *, bounds: Bounds, probe: IdProbe, now_ms: int
) -> Offset:
    """The end of the next batch; `start` itself if nothing is new."""
    active = [
        stream for stream, tail in sorted(tails.items()) if is_after(tail.last_id, start.position(stream))
    ]
    if not active:
        return start
    share = max(bounds.max_events // len(active), 1)
    ends: dict[Stream, tuple[str, int]] = {}
    for stream in active:
        ends[stream] = _end(stream, start.position(stream), tails[stream], share=share, probe=probe)
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


def _end(stream: Stream, start: str, tail: Tail, *, share: int, probe: IdProbe) -> tuple[str, int]:
    """The last id to take from a stream, and the estimated number of entries up to it."""
    if tail.length <= share:
        return tail.last_id, tail.length
    position, taken = start, 0
    for _ in range(STEPS):
        position, more = _step(stream, position, tail.last_id, reach=share - taken, probe=probe)
        taken += more
        # Half of the share is enough; the rest comes with the next batch.
        if not more or 2 * taken >= share:
            break
    return position, taken


def _step(stream: Stream, start: str, last_id: str, *, reach: int, probe: IdProbe) -> tuple[str, int]:
    """Go on while ids are about as dense as at the start; a burst ends the step."""
    head = probe.ids_after(stream, start, count=min(PROBE, reach))
    # An AvailableNow run ends at `last_id`, whatever comes behind it.
    head = [one for one in head if not is_after(one, last_id)]
    if len(head) < min(PROBE, reach):
        return (head[-1] if head else start), len(head)
    position, density, beyond = head[-1], _density(head), reach - len(head)
    for _ in range(8):
        candidate = format_id((parse_id(position)[0] + int(beyond / density), 0))
        near = probe.ids_until(stream, min(candidate, last_id, key=parse_id), count=PROBE)
        if not near or not is_after(near[0], position):
            break
        span_ms = parse_id(near[0])[0] - parse_id(position)[0]
        densest = max(density, _density(near[::-1]))
        # The estimate assumes the higher density throughout, so it may exceed the bound by half.
        if span_ms * densest <= 1.5 * beyond:
            return near[0], len(head) + int(span_ms * densest)
        # A tenth more than measured, so that the next candidate is nearer even if the density was the same.
        density = densest * 1.1
    return position, len(head)


def _density(ids: Sequence[str]) -> float:
    """Entries per millisecond over the later half of some ids."""
    later = ids[len(ids) // 2 :]
    span_ms = parse_id(later[-1])[0] - parse_id(later[0])[0]
    return len(later) / max(span_ms, 1)


def fallback_offset(landed: Mapping[Stream, str]) -> Offset:
    """The start without a checkpoint: after the positions that have landed in the warehouse."""
    return Offset(positions={stream: text for stream, text in landed.items() if text != ORIGIN})
