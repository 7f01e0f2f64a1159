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
from weir.control.scopes import scope_names
from weir.control.sql import load_queries
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

SQL = load_queries("weir.alerts", "situations.sql")
DEFAULT_RECENT_MS = 5 * 60_000
_MIN_RECENT_MS = 10_000
_MAX_RECENT_MS = 15 * 60_000
_USUAL = 6
"""The usual is this many times as long as the recent past, and right before it."""
_ONE_BY_ONE = 20


class Situations:
    """Everything that is known about queues at this moment; what cannot be had is left empty."""

    def __init__(self, warehouse: Warehouse, broker: Broker, database: Database, *, clock: Clock) -> None:
        self._warehouse = warehouse
        self._broker = broker
        self._database = database
        self._definitions = QueueDefinitions(database)
        self._clock = clock

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
            self._states(environment, queues),
            self._flows(environment, queues, recent_ms=recent_ms),
            self._definitions.of(environment),
            self._lag_ms(environment),
            self._errors(environment, queues, recent_ms=recent_ms),
        )
        actions = {one.queue: _endpoint(one) for one in definitions}
        return {
            queue: _situation(
                states.get(queue),
                flows=flows.get(queue.queue, {}),
                recent_ms=recent_ms,
                errors=tuple(errors.get(queue.queue, ())),
                delivers_to=actions.get(queue),
                lag_ms=lag_ms,
            )
            for queue in queues
        }

    async def _states(
        self, environment: EnvironmentRef, queues: Sequence[QueueRef]
    ) -> dict[QueueRef, QueueState]:
        """The queues now; many of them are had by asking for all of the environment."""
        try:
            if len(queues) > _ONE_BY_ONE:
                return {state.queue: state for state in await self._broker.states(environment)}
            found = await asyncio.gather(*(self._state(queue) for queue in queues))
        except Unavailable:
            return {}
        return {state.queue: state for state in found if state is not None}

    async def _state(self, queue: QueueRef) -> QueueState | None:
        try:
            return await self._broker.state(queue)
        except NotFound:
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

    async def _errors(
        self, environment: EnvironmentRef, queues: Sequence[QueueRef], *, recent_ms: int
    ) -> dict[str, list[Errors]]:
        """What messages of the queues died of lately, the most frequent first, by queue name."""
        now_ms = self._clock.now_ms()
        rows = await self._database.fetch(
            SQL["recent_errors"],
            queues=[queue.queue for queue in queues],
            now_ms=now_ms,
            since_ms=now_ms - max(2 * recent_ms, 60_000),
            **scope_names(environment),
        )
        errors: dict[str, list[Errors]] = defaultdict(list)
        for row in rows:
            deaths = max(math.ceil(row["heat"]), 1)
            errors[row["queue"]].append(Errors(sample=row["sample_error"], deaths=deaths))
        return errors


class DefinedLifetimes:
    """How long messages live, from the queues' definitions."""

    def __init__(self, database: Database) -> None:
        self._definitions = QueueDefinitions(database)

    async def ttls_ms(self, environments: Sequence[EnvironmentRef]) -> Mapping[QueueRef, int]:
        found: dict[QueueRef, int] = {}
        for environment in environments:
            for one in await self._definitions.of(environment):
                ttl_ms, age_ms = one.spec.message_ttl_ms, one.spec.retention.message_age_ms
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
