"""What the next micro-batch takes: bounded, fair to all streams, and decided before anything is read.

Redis cannot tell the id of the n-th entry, so the end of a bounded range is estimated from how dense
ids are at its two ends. The bound is therefore approximate; memory is bounded by it, exactness is not
affected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from weir.pipeline.offsets import Offset, Stream
from weir.telemetry.store import Tail
from weir.telemetry.stream_ids import ORIGIN, format_id, is_after, parse_id

PROBE = 512
STEPS = 24
"""How many bursts a stream may be followed through for one batch."""

LANE_EVENTS = 15_000
"""A further read task is worth its tasks and its insert from about this many events on."""


class IdProbe(Protocol):
    """Looks at the ids around a position of one stream."""

    def ids_after(self, stream: Stream, position: str, *, count: int) -> list[str]: ...

    def ids_until(self, stream: Stream, position: str, *, count: int) -> list[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    max_events: int
    max_read_tasks: int


def next_offset(
    start: Offset, tails: Mapping[Stream, Tail], *, bounds: Bounds, probe: IdProbe, now_ms: int
) -> Offset:
    """The end of the next batch; `start` itself when there is nothing new."""
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
    """A read task for every stream: as many read tasks as the work is worth, the largest streams first."""
    wanted = -(-sum(sizes.values()) // LANE_EVENTS)
    loads = [0] * max(1, min(max_read_tasks, wanted, len(sizes)))
    read_tasks = {}
    for stream, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        read_task = loads.index(min(loads))
        loads[read_task] += size
        read_tasks[stream] = read_task
    return read_tasks


def _end(stream: Stream, start: str, tail: Tail, *, share: int, probe: IdProbe) -> tuple[str, int]:
    """The last id to take from a stream, and about how many entries that is."""
    if tail.length <= share:
        return tail.last_id, tail.length
    position, taken = start, 0
    for _ in range(STEPS):
        position, more = _step(stream, position, tail.last_id, reach=share - taken, probe=probe)
        taken += more
        if not more or 2 * taken >= share:
            break
    return position, taken


def _step(stream: Stream, start: str, last_id: str, *, reach: int, probe: IdProbe) -> tuple[str, int]:
    """As far as ids are about as dense as they are next; a burst ends such a step."""
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
        if span_ms * densest <= 1.5 * beyond:
            return near[0], len(head) + int(span_ms * densest)
        density = densest * 1.1
    return position, len(head)


def _density(ids: Sequence[str]) -> float:
    """Entries a millisecond over the later half of some ids."""
    later = ids[len(ids) // 2 :]
    span_ms = parse_id(later[-1])[0] - parse_id(later[0])[0]
    return len(later) / max(span_ms, 1)


def fallback_offset(landed: Mapping[Stream, str]) -> Offset:
    """Where to begin without a checkpoint: behind what the warehouse says has landed."""
    return Offset(positions={stream: text for stream, text in landed.items() if text != ORIGIN})
