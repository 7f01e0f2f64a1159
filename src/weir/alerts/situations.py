"""Gathering what a verdict looks at: the queue now, its flows, its recent deaths, and telemetry's own lag."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from weir.alerts.verdict import Errors, Flow, Situation
from weir.broker.broker import Broker
from weir.control.database import Database
from weir.control.queues import QueueDefinition, QueueDefinitions
from weir.deadletters.groups import list_groups
from weir.errors import NotFound, Unavailable
from weir.model.clock import Clock
from weir.model.message import QueueState
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliverTo
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.reading.arithmetic import mean
from weir.warehouse.reading.periods import Resolution
from weir.warehouse.reading.questions import ask_tenant
from weir.warehouse.reading.queues import table_of
from weir.warehouse.reading.warehouse import Warehouse
from weir.warehouse.tables import QUEUES

DEFAULT_RECENT_MS = 5 * 60_000
_MIN_RECENT_MS = 10_000
_MAX_RECENT_MS = 15 * 60_000
_USUAL = 6
"""The usual is this many times as long as the recent past, and right before it."""
_TOGETHER = 32


class Situations:
    """Everything that is known about queues at this moment; what cannot be had is left empty."""

    def __init__(self, warehouse: Warehouse, broker: Broker, database: Database, *, clock: Clock) -> None:
        self._warehouse = warehouse
        self._broker = broker
        self._database = database
        self._definitions = QueueDefinitions(database)
        self._clock = clock
        self._slots = asyncio.Semaphore(_TOGETHER)

    async def of(self, queue: QueueRef, *, recent_ms: int = DEFAULT_RECENT_MS) -> Situation:
        return (await self.of_all([queue], recent_ms=recent_ms))[queue]

    async def of_all(
        self, queues: Sequence[QueueRef], *, recent_ms: int = DEFAULT_RECENT_MS
    ) -> dict[QueueRef, Situation]:
        """The situations of many queues: one question an environment, one look at each queue."""
        recent_ms = min(max(recent_ms, _MIN_RECENT_MS), _MAX_RECENT_MS)
        by_environment: dict[EnvironmentRef, list[QueueRef]] = defaultdict(list)
        for queue in queues:
            by_environment[queue.scope].append(queue)
        found: dict[QueueRef, Situation] = {}
        for environment, members in by_environment.items():
            found.update(await self._of_environment(environment, members, recent_ms=recent_ms))
        return found

    async def _of_environment(
        self, environment: EnvironmentRef, queues: Sequence[QueueRef], *, recent_ms: int
    ) -> dict[QueueRef, Situation]:
        states, flows, definitions, lag_ms, errors = await asyncio.gather(
            asyncio.gather(*(self._state(queue) for queue in queues)),
            self._flows(environment, queues, recent_ms=recent_ms),
            self._definitions.of(environment),
            self._lag_ms(environment),
            asyncio.gather(*(self._errors(queue, recent_ms=recent_ms) for queue in queues)),
        )
        actions = {one.queue: _endpoint(one) for one in definitions}
        return {
            queue: _situation(
                state,
                flows=flows.get(queue.queue, {}),
                recent_ms=recent_ms,
                errors=deaths,
                delivers_to=actions.get(queue),
                lag_ms=lag_ms,
            )
            for queue, state, deaths in zip(queues, states, errors, strict=True)
        }

    async def _state(self, queue: QueueRef) -> QueueState | None:
        async with self._slots:
            try:
                return await self._broker.state(queue)
            except (NotFound, Unavailable):
                return None

    async def _lag_ms(self, environment: EnvironmentRef) -> int:
        shard = shard_of(environment, shards=self._warehouse.shards)
        return (await self._warehouse.freshness.of("queue")).lag_ms(shard)

    async def _flows(
        self, environment: EnvironmentRef, queues: Sequence[QueueRef], *, recent_ms: int
    ) -> dict[str, dict[bool, Flow]]:
        """The recent past and the usual, by queue name."""
        step_ms = Resolution.FIVE_SECONDS.step_ms
        end_ms = self._clock.now_ms() // step_ms * step_ms + step_ms
        split_ms = end_ms - -(-recent_ms // step_ms) * step_ms
        start_ms = split_ms - _USUAL * (end_ms - split_ms)
        rows = await self._warehouse.reader.ask(
            ask_tenant(
                "queue_flows",
                environment,
                table=table_of(QUEUES, Resolution.FIVE_SECONDS),
                queues=[queue.queue for queue in queues],
                start_s=start_ms // 1_000,
                split_s=split_ms // 1_000,
                end_s=end_ms // 1_000,
            )
        )
        flows: dict[str, dict[bool, Flow]] = defaultdict(dict)
        for row in rows:
            recent = bool(row["recent"])
            # A queue that is younger than the span is not diluted by the time before it.
            begun_ms = split_ms if recent else max(int(row["first_ms"]), start_ms)
            flows[row["queue"]][recent] = _flow(row, span_ms=(end_ms if recent else split_ms) - begun_ms)
        return flows

    async def _errors(self, queue: QueueRef, *, recent_ms: int) -> tuple[Errors, ...]:
        """What messages of the queue died of lately, the most frequent first."""
        now_ms = self._clock.now_ms()
        async with self._slots:
            groups = await list_groups(
                self._database, queue.scope, now_ms=now_ms, queue=queue.queue, limit=20
            )
        lately = [group for group in groups if now_ms - group.last_seen_ms <= max(2 * recent_ms, 60_000)]
        lately.sort(key=lambda group: -group.rate_per_h)
        return tuple(
            Errors(sample=group.sample_error, deaths=max(math.ceil(group.rate_per_h), 1)) for group in lately
        )


class DefinedLifetimes:
    """How long messages live, from the queues' definitions."""

    def __init__(self, database: Database) -> None:
        self._definitions = QueueDefinitions(database)

    async def ttls_ms(self, environments: Sequence[EnvironmentRef]) -> Mapping[QueueRef, int]:
        found: dict[QueueRef, int] = {}
        for environment in environments:
            for one in await self._definitions.of(environment):
                ttl_ms, age_ms = one.spec.message_ttl_ms, one.spec.retention.max_age_ms
                found[one.queue] = age_ms if ttl_ms is None else min(ttl_ms, age_ms)
        return found


def _endpoint(definition: QueueDefinition) -> str | None:
    action = definition.spec.action
    return action.url if isinstance(action, DeliverTo) else None


def _flow(row: Mapping[str, Any], *, span_ms: int) -> Flow:
    return Flow(
        span_ms=span_ms,
        counts={name: int(row[name]) for name in QUEUE_COUNTERS},
        running_mean=row["running_mean"],
        running_max=row["running_max"],
        wait_mean_ms=mean(row["wait_sum_ms"], row["wait_count"]),
    )


def _situation(
    state: QueueState | None,
    *,
    flows: Mapping[bool, Flow],
    recent_ms: int,
    errors: tuple[Errors, ...],
    delivers_to: str | None,
    lag_ms: int,
) -> Situation:
    common: dict[str, Any] = {
        "recent": flows.get(True, Flow(span_ms=recent_ms)),
        "before": flows.get(False),
        "errors": errors,
        "delivers_to": delivers_to,
        "telemetry_lag_ms": lag_ms,
    }
    if state is None:
        return Situation(depth=0, **common)
    return Situation(
        depth=state.depth,
        delayed=state.delayed,
        running=state.running,
        limit=state.limit,
        environment_running=state.environment_running,
        environment_limit=state.environment_limit,
        paused=state.paused,
        oldest_age_ms=state.oldest_age_ms,
        **common,
    )
