"""Gathers the situations of queues: state, workers, telemetry and attempts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weir.alerts.attempts import AttemptReader
from weir.alerts.situation import Errors, Flow, Handlers, Situation, workforce_of
from weir.broker.broker import Broker
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinition, QueueDefinitions
from weir.errors import InvalidInput, NotFound, Unavailable
from weir.model.clock import Clock
from weir.model.durations import MINUTE_MS
from weir.model.message import QueueState
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.model.wording import duration
from weir.spec.ir import DeliverTo
from weir.telemetry.events import QUEUE_COUNTERS, count_left
from weir.telemetry.live_workers import LiveWorker, WorkerRegister
from weir.warehouse.reading.arithmetic import mean
from weir.warehouse.reading.flows import NOW_SPAN_MS, Cuts, FlowPart, QueueFlows, cuts_for
from weir.warehouse.reading.pace import Pace
from weir.warehouse.reading.periods import parse_period
from weir.warehouse.reading.series import TimeSpan, covered_ms
from weir.warehouse.reading.warehouse import Warehouse

DEFAULT_RECENT_MS = 5 * MINUTE_MS
MIN_RECENT_MS = NOW_SPAN_MS
MAX_RECENT_MS = 15 * MINUTE_MS
# Beyond this many queues, one call for the whole environment costs less than one call per queue.
_ONE_BY_ONE = 20


def parse_recent(text: str) -> int:
    """The length of the recent past in milliseconds, from a text such as `90s` or `5m`."""
    recent_ms = parse_period(text)
    if not MIN_RECENT_MS <= recent_ms <= MAX_RECENT_MS:
        least, most = duration(MIN_RECENT_MS), duration(MAX_RECENT_MS)
        raise InvalidInput(f"`{text:.32}` is out of range; the recent past is {least} to {most}")
    return recent_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """The facts in PostgreSQL about the queues of one environment."""

    definitions: Mapping[QueueRef, QueueDefinition]
    errors: Mapping[str, tuple[Errors, ...]]
    handlers: Mapping[str, Handlers]
    disabled: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    """All facts about the queues of one environment."""

    cuts: Cuts
    lag_ms: int
    complete_ms: int
    stale: bool
    """Telemetry is too far behind for rates."""
    telemetry_off_since_ms: int | None
    states: Mapping[QueueRef, QueueState] | None
    """None if Redis does not answer."""
    flows: Mapping[str, QueueFlows]
    gaps: Sequence[TimeSpan]
    """The spans in which telemetry was lost or switched off."""
    alive: Sequence[LiveWorker] | None
    stored: _Stored


class Situations:
    """Gathers situations. While Redis is away its part is left empty; the other stores must answer."""

    def __init__(
        self,
        warehouse: Warehouse,
        broker: Broker,
        database: Database,
        *,
        clock: Clock,
        workers: WorkerRegister | None = None,
    ) -> None:
        self._warehouse = warehouse
        self._broker = broker
        self._definitions = QueueDefinitions(database)
        self._attempts = AttemptReader(database, broker)
        self._clock = clock
        self._workers = workers

    async def of(self, queue: QueueRef, *, recent_ms: int = DEFAULT_RECENT_MS) -> Situation:
        return (await self.of_all([queue], recent_ms=recent_ms))[queue]

    async def of_all(
        self, queues: Sequence[QueueRef], *, recent_ms: int = DEFAULT_RECENT_MS
    ) -> dict[QueueRef, Situation]:
        """The situations of many queues, with one query of each kind per environment."""
        recent_ms = min(max(recent_ms, MIN_RECENT_MS), MAX_RECENT_MS)
        by_environment: dict[EnvironmentRef, list[QueueRef]] = defaultdict(list)
        for queue in queues:
            by_environment[queue.scope].append(queue)
        found: dict[QueueRef, Situation] = {}
        for environment, members in by_environment.items():
            around = await self._around(environment, members, recent_ms=recent_ms)
            found.update({queue: _situation(queue, around) for queue in members})
        return found

    async def _around(
        self, environment: EnvironmentRef, queues: Sequence[QueueRef], *, recent_ms: int
    ) -> _Around:
        shard = shard_of(environment, shards=self._warehouse.shards)
        fresh, now_ms = await asyncio.gather(self._warehouse.freshness.of("queue"), self._now_ms(environment))
        complete_ms = fresh.complete_until_ms(shard, now_ms=now_ms)
        cuts = cuts_for(end_ms=now_ms, complete_ms=complete_ms, recent_ms=recent_ms)
        names = [queue.queue for queue in queues]
        states, alive, flows, gaps, stored = await asyncio.gather(
            self._read_states(environment, queues),
            self._read_live_workers(),
            self._read_flows(environment, names, cuts=cuts, behind=complete_ms < now_ms),
            self._warehouse.gaps.all_gaps(),
            self._read_stored(environment, names, cuts=cuts),
        )
        return _Around(
            cuts=cuts,
            lag_ms=fresh.lag_ms(shard),
            complete_ms=complete_ms,
            stale=fresh.is_stale(shard),
            telemetry_off_since_ms=fresh.off[shard].from_ms if fresh.is_off(shard) else None,
            states=states,
            flows=flows,
            gaps=[gap.span for gap in gaps if (gap.metric, gap.shard) == ("queue", shard)],
            alive=alive,
            stored=stored,
        )

    async def _read_flows(
        self, environment: EnvironmentRef, names: Sequence[str], *, cuts: Cuts, behind: bool
    ) -> dict[str, QueueFlows]:
        """The landed figures. A queue without recent ones may have counts that have not landed yet."""
        flows = await self._warehouse.flows.of(environment, names, cuts)
        resting = [name for name in names if name not in flows]
        if not behind or not resting:
            return flows
        odometers = await self._warehouse.flows.odometers(environment, resting)
        return flows | {name: QueueFlows(totals=totals) for name, totals in odometers.items()}

    async def _read_stored(self, environment: EnvironmentRef, names: Sequence[str], *, cuts: Cuts) -> _Stored:
        """Read one after the other, so that a situation takes one connection to PostgreSQL, not four."""
        return _Stored(
            definitions={one.queue: one for one in await self._definitions.of(environment)},
            errors=await self._attempts.errors(environment, names, cuts=cuts),
            handlers=await self._attempts.handlers(environment, names, cuts=cuts),
            disabled=await self._attempts.disabled_endpoints(environment),
        )

    async def _now_ms(self, environment: EnvironmentRef) -> int:
        """Redis' time, which telemetry uses too; this host's time while Redis is away."""
        try:
            return await self._broker.now_ms(shard_of(environment, shards=self._broker.shards))
        except Unavailable:
            return self._clock.now_ms()

    async def _read_live_workers(self) -> Sequence[LiveWorker] | None:
        try:
            return None if self._workers is None else await self._workers.alive()
        except Unavailable:
            return None

    async def _read_states(
        self, environment: EnvironmentRef, queues: Sequence[QueueRef]
    ) -> dict[QueueRef, QueueState] | None:
        """The states of the queues now; None while Redis is away."""
        try:
            if len(queues) > _ONE_BY_ONE:
                return {state.queue: state for state in await self._broker.states(environment)}
            found = await asyncio.gather(*(self._read_state(queue) for queue in queues))
        except Unavailable:
            return None
        return {state.queue: state for state in found if state is not None}

    async def _read_state(self, queue: QueueRef) -> QueueState | None:
        try:
            return await self._broker.state(queue)
        except NotFound:
            return None


class DefinedLifetimes:
    """The TTLs of queues, from their definitions."""

    def __init__(self, database: Database) -> None:
        self._definitions = QueueDefinitions(database)

    async def ttls_ms(self, environments: Sequence[EnvironmentRef]) -> Mapping[QueueRef, int]:
        found: dict[QueueRef, int] = {}
        for environment in environments:
            for one in await self._definitions.of(environment):
                ttl_ms, age_ms = one.spec.message_ttl_ms, one.spec.retention.message_age_ms
                found[one.queue] = age_ms if ttl_ms is None else min(ttl_ms, age_ms)
        return found


def _situation(queue: QueueRef, around: _Around) -> Situation:
    flows = around.flows.get(queue.queue, QueueFlows())
    state = None if around.states is None else around.states.get(queue)
    late = _late(state, flows, around=around)
    counts = late or dict.fromkeys(QUEUE_COUNTERS, 0)
    definition = around.stored.definitions.get(queue)
    action = None if definition is None else definition.spec.action
    endpoint = action.url if isinstance(action, DeliverTo) else None
    return Situation(
        reachable=around.states is not None,
        **_live(state),
        now=_now(flows, counts, cuts=around.cuts),
        recent=_recent(flows, counts, cuts=around.cuts),
        before=_before(flows, around=around),
        pace=None if late is None or around.stale else _pace(flows, late, around=around),
        errors=around.stored.errors.get(queue.queue, ()),
        handlers=around.stored.handlers.get(queue.queue, Handlers()),
        has_work=action is not None,
        workforce=None if around.alive is None else workforce_of(queue, around.alive),
        delivers_to=endpoint,
        disabled_reason=None if endpoint is None else around.stored.disabled.get(endpoint),
        telemetry_lag_ms=around.lag_ms,
        telemetry_off_since_ms=around.telemetry_off_since_ms,
    )


def _live(state: QueueState | None) -> dict[str, Any]:
    if state is None:
        return {"depth": 0}
    return {
        "depth": state.depth,
        "delayed": state.delayed,
        "running": state.running,
        "limit": state.limit,
        "environment_running": state.environment_running,
        "environment_limit": state.environment_limit,
        "paused": state.paused,
        "oldest_age_ms": state.oldest_age_ms,
    }


def _late(state: QueueState | None, flows: QueueFlows, *, around: _Around) -> Mapping[str, int] | None:
    """The counts that have not landed yet: the odometers now, less those in the newest event that landed.

    None if they are not known: nothing of the queue has landed, and it is not at rest.
    """
    if state is None:
        return dict.fromkeys(QUEUE_COUNTERS, 0)
    if flows.totals:
        return {name: max(state.odometers[name] - flows.totals[name], 0) for name in QUEUE_COUNTERS}
    complete = around.complete_ms >= around.cuts.end_ms and state.depth + state.running == 0
    return dict.fromkeys(QUEUE_COUNTERS, 0) if complete or not any(state.odometers.values()) else None


def _now(flows: QueueFlows, late: Mapping[str, int], *, cuts: Cuts) -> Flow:
    return _flow(flows, (FlowPart.NOW,), late, span_ms=cuts.end_ms - cuts.now_ms)


def _recent(flows: QueueFlows, late: Mapping[str, int], *, cuts: Cuts) -> Flow:
    return _flow(flows, (FlowPart.RECENT, FlowPart.NOW), late, span_ms=cuts.end_ms - cuts.recent_ms)


def _before(flows: QueueFlows, *, around: _Around) -> Flow | None:
    part, cuts = flows.parts.get(FlowPart.BEFORE), around.cuts
    if part is None:
        return None
    # The span of a young queue begins with the queue: the time before it would lower its rates. So would
    # gaps in telemetry.
    start_ms, end_ms = max(part.first_ms, cuts.start_ms), cuts.recent_ms
    span_ms = end_ms - start_ms - covered_ms(around.gaps, start_ms=start_ms, end_ms=end_ms)
    return _flow(flows, (FlowPart.BEFORE,), {}, span_ms=span_ms) if span_ms > 0 else None


def _flow(flows: QueueFlows, parts: Sequence[FlowPart], late: Mapping[str, int], *, span_ms: int) -> Flow:
    found = [flows.parts[part] for part in parts if part in flows.parts]
    buckets = sum(part.buckets for part in found)
    return Flow(
        span_ms=span_ms,
        counts={
            name: sum(part.counts[name] for part in found) + late.get(name, 0) for name in QUEUE_COUNTERS
        },
        running_max=max((part.running_max for part in found), default=0),
        running_mean=mean(sum(part.running_sum for part in found), buckets) or 0.0,
    )


def _pace(flows: QueueFlows, late: Mapping[str, int], *, around: _Around) -> Pace:
    return flows.paces.pace(
        end_ms=around.cuts.end_ms,
        late=(late["enqueued"], count_left(late), late["dequeued"]),
        late_from_ms=around.complete_ms,
    )
