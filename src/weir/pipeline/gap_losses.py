"""Decides how much of a queue's drift a gap explains. Pure.

The first event that a queue sends after a gap tells everything that the queue lost until then. So a gap
explains only the drift that was added to the newest drift known from before the gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weir.telemetry.stream_ids import parse_id
from weir.warehouse.audit_reader import Counts, GapReport, ShardQueue
from weir.warehouse.tables import GapKind


def gaps_by_shard(gaps: Sequence[GapReport], *, metric: str = "queue") -> dict[int, list[GapReport]]:
    """The gaps in the events of one metric. A rebuild changes only the tiers, so its gaps explain no loss."""
    found: dict[int, list[GapReport]] = {}
    for gap in gaps:
        if gap.metric == metric and gap.kind is not GapKind.UNREADABLE:
            found.setdefault(gap.shard, []).append(gap)
    return found


def losses_in_gaps(
    queues: Sequence[ShardQueue], gaps: Mapping[int, Sequence[GapReport]]
) -> list[tuple[ShardQueue, GapReport, Counts]]:
    """The loss of each queue in the newest gap before its newest event, if that gap is not settled yet."""
    found = []
    for queue in queues:
        gap = _gap_to_settle(queue, gaps.get(queue.shard, ()))
        if gap is not None:
            found.append((queue, gap, _loss(queue)))
    return found


def _gap_to_settle(queue: ShardQueue, gaps: Sequence[GapReport]) -> GapReport | None:
    """The newest gap before a queue's newest event, unless its losses are known already.

    A difference that comes later does not come from that gap, so each gap is settled once per queue, even if
    nothing was lost.
    """
    # A gap before the first read of a stream begins at 0-0.
    known = max(map(parse_id, queue.settled), default=(-1, 0))
    due = [gap for gap in gaps if gap.to_ms <= queue.last_ms and parse_id(gap.from_id) > known]
    return max(due, key=lambda gap: parse_id(gap.from_id), default=None)


def _loss(queue: ShardQueue) -> Counts:
    # Less drift than before means that events were counted twice, and a gap cannot explain that.
    return tuple(max(now - before, 0) for now, before in zip(queue.drift, queue.known, strict=True))
