"""Switches metrics off and on, records the gaps, and reports the loss."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, TypeVar

from weir.broker.broker import Broker
from weir.broker.metrics_switch import MetricsSwitch, SwitchState
from weir.errors import Unavailable
from weir.model.bounded_threads import BoundedThreads
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.pipeline.switch_gaps import record_switch_gaps, unrecorded
from weir.telemetry.events import QUEUE, QUEUE_COUNTERS
from weir.telemetry.progress import read_lags
from weir.telemetry.store import StreamStore
from weir.telemetry.switch import ShardSwitch
from weir.warehouse.audit_reader import AuditReader
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.tables import GapKind

T = TypeVar("T")

SHOWN_SPANS = 10
"""How many spans per shard are shown, newest first."""


class LossSource(StrEnum):
    """Where the figures of a loss come from."""

    ODOMETERS = "odometers"
    """Metrics are off: the odometers of the queues now, less the landed ones."""
    AUDIT = "audit"
    """Metrics are on again: the losses that the audit attributed to the span so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The counts of queues that the metrics lost in the newest span without metrics."""

    counts: Mapping[str, int]
    """By counter; counters with 0 are left out."""
    source: LossSource
    landed: bool
    """False while events from before the span have not landed: the odometers count those as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchView:
    """The switch of all shards, and what its newest span cost."""

    state: SwitchState
    recorded: bool
    """Whether the warehouse knows the spans; if not, the pipeline records them when it can."""
    loss: Loss | None
    """None if metrics were never off, or if a store does not answer in time."""


def switch_document(view: SwitchView) -> dict[str, Any]:
    """The view for programs: the API sends it, and the command prints it as JSON."""
    state, newest = view.state, _decisive(view.state)
    return {
        "off": state.off,
        "mixed": state.mixed,
        "since_ms": newest.since_ms or None,
        "by": newest.by,
        "reason": newest.reason,
        "shards": [
            {
                "shard": one.shard,
                "off": one.off,
                "since_ms": one.since_ms or None,
                "by": one.by,
                "reason": one.reason,
            }
            for one in state.shards
        ],
        "silent": [{"shard": shard, "error": error} for shard, error in state.silent.items()],
        "spans": [
            {"shard": one.shard, **asdict(span)}
            for one in state.shards
            for span in reversed(one.spans[-SHOWN_SPANS:])
        ],
        "recorded": view.recorded,
        "loss": None if view.loss is None else asdict(view.loss),
    }


def _decisive(state: SwitchState) -> ShardSwitch:
    """The switch to show for all: of the shard that is off for longest, or else of the one switched last."""
    if state.off:
        return min((one for one in state.shards if one.off), key=lambda one: one.since_ms)
    return max(state.shards, key=lambda one: one.since_ms, default=ShardSwitch(shard=0))


class MetricsSwitching:
    """Switches the metrics of an installation, and tells how they are switched."""

    def __init__(
        self,
        switch: MetricsSwitch,
        broker: Broker,
        *,
        redis_url: str,
        clickhouse_url: str,
        metrics: Sequence[str],
        answer_s: float = 2.0,
        patience_s: float = 5.0,
    ) -> None:
        self._switch = switch
        self._broker = broker
        self._redis_url = redis_url
        self._clickhouse_url = clickhouse_url
        self._metrics = metrics
        self._answer_s = answer_s
        self._patience_s = patience_s
        self._threads = BoundedThreads(2, patience_s=patience_s, name="weir-metrics-switch")

    async def change(self, *, on: bool, by: str, reason: str) -> SwitchView:
        """Switch all shards; repeating this is safe. The view lists the shards that did not answer."""
        state = await self._switch.switch(on=on, by=by, reason=reason)
        await self._attempt(
            lambda one: record_switch_gaps(one, state.shards, metrics=self._metrics) if state.shards else 0
        )
        return await self._view(state)

    async def look(self) -> SwitchView:
        return await self._view(await self._switch.read())

    async def _view(self, state: SwitchState) -> SwitchView:
        recorded = await self._attempt(lambda one: AuditReader(one).switch_gaps())
        missing = (
            None if recorded is None else unrecorded(state.shards, recorded, metrics=self._metrics, now_ms=0)
        )
        loss = None if recorded is None else await self._loss(state)
        return SwitchView(state=state, recorded=missing == [], loss=loss)

    async def _loss(self, state: SwitchState) -> Loss | None:
        if not any(switch.spans for switch in state.shards):
            return None
        count, source = (
            (self._count_by_odometers, LossSource.ODOMETERS)
            if state.off
            else (self._count_by_audit, LossSource.AUDIT)
        )
        try:
            async with asyncio.timeout(self._patience_s):
                counts = await count(state)
                landed = await self._threads.run(self._has_landed)
        except (TimeoutError, Unavailable):
            return None
        return Loss(
            counts={name: count for name, count in counts.items() if count}, source=source, landed=landed
        )

    async def _count_by_odometers(self, state: SwitchState) -> Counter[str]:
        """How far the odometers of queues are ahead of the landed ones, in the shards that are off."""
        off = {switch.shard for switch in state.shards if switch.off}
        total: Counter[str] = Counter()
        for environment in await self._ask(lambda one: AuditReader(one).environments()):
            if shard_of(environment, shards=self._broker.shards) in off:
                total += await self._count_ahead(environment)
        return total

    async def _count_ahead(self, environment: EnvironmentRef) -> Counter[str]:
        landed = await self._ask(lambda one: AuditReader(one).odometers([environment]))
        total: Counter[str] = Counter()
        for state in await self._broker.states(environment):
            _, counts = landed.get(state.queue, (0, (0,) * len(QUEUE_COUNTERS)))
            for name, count in zip(QUEUE_COUNTERS, counts, strict=True):
                total[name] += max(state.odometers.get(name, 0) - count, 0)
        return total

    async def _count_by_audit(self, state: SwitchState) -> Counter[str]:
        """The sum of what the audit attributed to the newest span of each shard."""
        newest = {switch.shard: switch.ended[-1].from_ms for switch in state.shards if switch.ended}
        total: Counter[str] = Counter()
        for gap in await self._ask(lambda one: AuditReader(one).gaps()):
            if (
                gap.kind is GapKind.SWITCHED_OFF
                and gap.metric == QUEUE.name
                and newest.get(gap.shard) == gap.from_ms
            ):
                total.update(gap.lost)
        return total

    def _has_landed(self) -> bool:
        store = StreamStore(self._redis_url, timeout_s=self._answer_s)
        try:
            lags = read_lags(store, metrics=[QUEUE.name], shards=self._broker.shards, now_ms=0)
            return not any(lag.events for lag in lags)
        finally:
            store.close()

    async def _attempt(self, ask: Callable[[ClickHouseConnection], T]) -> T | None:
        """The answer of the warehouse; None if it does not answer."""
        try:
            return await self._ask(ask)
        except (TimeoutError, Unavailable):
            return None

    async def _ask(self, ask: Callable[[ClickHouseConnection], T]) -> T:
        def connect_and_ask() -> T:
            with _connected(self._clickhouse_url, self._answer_s) as warehouse:
                return ask(warehouse)

        return await self._threads.run(connect_and_ask)


@contextmanager
def _connected(url: str, answer_s: float) -> Iterator[ClickHouseConnection]:
    connection = ClickHouseConnection(url, timeout_s=answer_s, connect_timeout_s=answer_s)
    try:
        yield connection
    finally:
        connection.close()
