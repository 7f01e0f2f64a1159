"""Simulates the events that the demo's queues would have emitted before it started.

They have the layout of real events and reach the tables through the real transforms; only their times are
older. The simulation's steps get coarser with age, as the tiers do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from weir.demo.past_incidents import past_incidents
from weir.demo.scenario import SHOP, Incidents, QueueStory, Tenant, arrivals_per_second
from weir.model.durations import DAY_MS, HOUR_MS, MINUTE_MS
from weir.telemetry.codec import MetricEvent
from weir.telemetry.events import QUEUE_COUNTERS, QueueOperation

# The bucket width of the finest tier.
FINE_MS = 5_000
AGES: tuple[tuple[int, int], ...] = (
    (30 * DAY_MS, 15 * MINUTE_MS),
    (7 * DAY_MS + 2 * HOUR_MS, MINUTE_MS),
    (7 * DAY_MS - HOUR_MS, 5 * MINUTE_MS),
    (DAY_MS + 2 * HOUR_MS, FINE_MS),
    (DAY_MS - HOUR_MS // 2, MINUTE_MS),
    (2 * HOUR_MS, FINE_MS),
)
"""Pairs of an age and the width of the steps from there on. Steps get coarser with age, and stay shorter
than a point of a chart, so that a point has a lowest and a highest value. Charts compare the last two hours
with those a day and a week ago, so these are as fine as their tier."""

# Waits per event: enough for percentiles, while the past stays small.
MAX_SAMPLES = 20
# A long step is simulated in strokes of this length, so that bursts and incidents show in it.
STROKE_MS = 4 * MINUTE_MS
PAUSED_FOR_MS = 2 * HOUR_MS
_OPERATION = list(QueueOperation).index(QueueOperation.HEARTBEAT)


@dataclass(slots=True)
class _Remainder:
    """Turns amounts into whole messages; the remainder is kept for the next step."""

    left: float = 0.0

    def whole(self, amount: float) -> int:
        self.left += amount
        found = int(self.left)
        self.left -= found
        return found


@dataclass(slots=True, kw_only=True)
class _SimulatedQueue:
    """The state of a queue between two steps."""

    incidents: Incidents
    depth: float = 0.0
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(QUEUE_COUNTERS, 0))
    arriving: _Remainder = field(default_factory=_Remainder)
    doomed: _Remainder = field(default_factory=_Remainder)
    failing: _Remainder = field(default_factory=_Remainder)
    backlog_since_ms: int | None = None
    dice: Random = field(default_factory=lambda: Random(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PastEvent:
    at_ms: int
    event: MetricEvent


def steps(now_ms: int) -> Iterator[tuple[int, int]]:
    """Start and width of each step, from the oldest up to now."""
    ends = [*(now_ms - age for age, _ in AGES[1:]), now_ms]
    for (age, width), end in zip(AGES, ends, strict=True):
        at = now_ms - age
        while at + width <= end:
            yield at, width
            at += width


def past(
    tenants: Sequence[Tenant], *, now_ms: int, incidents: Incidents | None = None
) -> Iterator[PastEvent]:
    """Every event of every queue, oldest first, with odometers that grow through all of them."""
    incidents = incidents or Incidents()
    incidents = replace(incidents, past=past_incidents(incidents.first_ms or now_ms))
    simulated = {
        (tenant.environment, story.name): _SimulatedQueue(
            incidents=incidents if tenant.environment == SHOP.environment else Incidents()
        )
        for tenant in tenants
        for story in tenant.queues
    }
    for at_ms, width_ms in steps(now_ms):
        for tenant in tenants:
            paused_since_ms = now_ms - PAUSED_FOR_MS
            moments = [
                _advance(
                    simulated[tenant.environment, story.name],
                    story,
                    at_ms=at_ms,
                    width_ms=width_ms,
                    paused=story.paused and at_ms >= paused_since_ms,
                )
                for story in tenant.queues
            ]
            yield from _events(tenant, moments, at_ms=at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """The counts and gauges of one queue after one step."""

    story: QueueStory
    depth: int
    running: int
    paused: bool
    counts: dict[str, int]
    totals: dict[str, int]
    waits: tuple[int, ...]


def _advance(
    queue: _SimulatedQueue, story: QueueStory, *, at_ms: int, width_ms: int, paused: bool
) -> _Moment:
    """Simulate one step, in strokes that are short enough for bursts and incidents; gauges are the peaks."""
    counts = dict.fromkeys(QUEUE_COUNTERS, 0)
    peak, slowest_ms = 0.0, 0.0
    for start_ms in range(at_ms, at_ms + width_ms, STROKE_MS):
        stroke_ms = min(STROKE_MS, at_ms + width_ms - start_ms)
        handled = _stroke(queue, story, counts, at_ms=start_ms, width_ms=stroke_ms, paused=paused)
        peak = max(peak, queue.depth)
        if handled and queue.backlog_since_ms is not None:
            # A message cannot have waited for longer than there has been a backlog.
            longest_ms = start_ms + stroke_ms - queue.backlog_since_ms
            slowest_ms = max(slowest_ms, min(queue.depth * stroke_ms / handled, longest_ms))
    for name, value in counts.items():
        queue.totals[name] += value
    workers = min(story.workers, story.limit or story.workers)
    depth = int(peak)
    return _Moment(
        story=story,
        depth=depth,
        running=0 if paused else min(workers, depth + (1 if counts["dequeued"] else 0)),
        paused=paused,
        counts=counts,
        totals=dict(queue.totals),
        waits=_waits(queue, story, handled=counts["dequeued"], slowest_ms=slowest_ms),
    )


def _stroke(
    queue: _SimulatedQueue,
    story: QueueStory,
    counts: dict[str, int],
    *,
    at_ms: int,
    width_ms: int,
    paused: bool,
) -> int:
    effect = queue.incidents.effect(story, at_ms)
    per_second = arrivals_per_second(story, at_ms) * effect.more + effect.besides_per_s
    arrived = queue.arriving.whole(per_second * width_ms / 1_000)
    workers = 0 if paused or effect.stopped else min(story.workers, story.limit or story.workers)
    capacity = int(workers * width_ms / queue.incidents.handler_ms(story, at_ms))
    handled = min(int(queue.depth) + arrived, capacity)
    dead = queue.doomed.whole(handled * (story.poison_share + effect.poison))
    nacked = queue.failing.whole(handled * queue.incidents.failure_share(story, at_ms)) + 2 * dead
    queue.depth = max(0.0, queue.depth + arrived - handled)
    if queue.depth < 1:
        queue.backlog_since_ms = None
    elif queue.backlog_since_ms is None:
        queue.backlog_since_ms = at_ms
    counts["enqueued"] += arrived
    counts["dequeued"] += handled + nacked
    counts["acked"] += handled - dead
    counts["nacked"] += nacked
    counts["dead"] += dead
    return handled


def _waits(queue: _SimulatedQueue, story: QueueStory, *, handled: int, slowest_ms: float) -> tuple[int, ...]:
    """A few samples of the wait, spread around the time that the backlog took."""
    samples = range(min(handled, MAX_SAMPLES))
    return tuple(
        int(slowest_ms * queue.dice.uniform(0.6, 1) + story.handler_ms * queue.dice.random()) for _ in samples
    )


def _events(tenant: Tenant, moments: Sequence[_Moment], *, at_ms: int) -> Iterator[PastEvent]:
    environment = tenant.environment
    scope = environment.names
    length = sum(moment.depth for moment in moments)
    running = sum(moment.running for moment in moments)
    for moment in moments:
        gauges = {
            "operation": _OPERATION,
            "queue_length": moment.depth,
            "running": moment.running,
            "queue_limit": moment.story.limit or 0,
            "environment_length": length,
            "environment_running": running,
            "paused": int(moment.paused),
            "oldest_age_ms": max(moment.waits, default=0) if moment.depth else 0,
        }
        odometers = {f"{name}_total": total for name, total in moment.totals.items()}
        event = MetricEvent(
            dimensions=(*scope, moment.story.name),
            values={**gauges, **moment.counts, **odometers},
            samples=moment.waits,
        )
        yield PastEvent(at_ms=at_ms, event=event)
