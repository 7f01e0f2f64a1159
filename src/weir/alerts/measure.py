"""Reads the figures that the rules need: one query per tier and kind of figure for all rules together."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeVar

from weir.alerts.alert_metrics import Metric
from weir.alerts.judge import (
    NOTHING,
    QUIET,
    Figure,
    Measurement,
    Trustworthiness,
    from_percentiles,
    from_sums,
)
from weir.alerts.operation_figures import OperationFigures, Watched
from weir.alerts.rule import AlertRule
from weir.model.durations import HOUR_MS
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.reading.freshness import Freshness, LandedGap
from weir.warehouse.reading.pace import Pace
from weir.warehouse.reading.warehouse import Warehouse
from weir.warehouse.reading.windows import Frame, Levels, Percentiles, Sums, frame_for

Found = TypeVar("Found")
_Ask = Callable[[Sequence[EnvironmentRef], Iterable[Frame]], Awaitable[dict[Frame, Found]]]
"""Reads one kind of figure of some environments over some windows."""


class MeasurementSource(StrEnum):
    """Which query gives a metric."""

    LEVELS = "levels"
    SUMS = "sums"
    RATES = "rates"
    """Sums over whole buckets, to be divided by their time."""
    PERCENTILES = "percentiles"
    WORKERS = "workers"
    PIPELINE = "pipeline"
    OPERATIONS = "operations"
    AUDIT = "audit"


_SOURCES = {
    Metric.BACKLOG: MeasurementSource.LEVELS,
    Metric.OLDEST_AGE: MeasurementSource.LEVELS,
    Metric.THROUGHPUT: MeasurementSource.RATES,
    Metric.DRAIN_TIME: MeasurementSource.RATES,
    Metric.EXPIRING: MeasurementSource.RATES,
    Metric.LATENCY_P50: MeasurementSource.PERCENTILES,
    Metric.LATENCY_P95: MeasurementSource.PERCENTILES,
    Metric.LATENCY_P99: MeasurementSource.PERCENTILES,
    Metric.EVENT_LOOP_LAG: MeasurementSource.WORKERS,
    Metric.PIPELINE_LAG: MeasurementSource.PIPELINE,
    Metric.METRICS_DRIFT: MeasurementSource.AUDIT,
    Metric.OPERATION_AGE: MeasurementSource.OPERATIONS,
    Metric.OPERATION_BACKLOG: MeasurementSource.OPERATIONS,
    Metric.FAILED_OPERATIONS: MeasurementSource.OPERATIONS,
}


def source_of(metric: Metric) -> MeasurementSource:
    return _SOURCES.get(metric, MeasurementSource.SUMS)


class Lifetimes(Protocol):
    """The TTLs of queues, for the forecast of expiring messages."""

    async def ttls_ms(self, environments: Sequence[EnvironmentRef]) -> Mapping[QueueRef, int]: ...


# A running pipeline audits every ten minutes. An older audit says nothing about now.
AUDIT_STALE_AFTER_MS = HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFigures:
    """The newest complete audit: when it began, and the queues with drift."""

    started_ms: int
    drifts: Mapping[QueueRef, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything that one evaluation judges."""

    now_ms: int
    freshness: Freshness
    worker_freshness: Freshness
    gaps: Sequence[LandedGap]
    shards: int
    frames: Mapping[int, Frame]
    levels: Mapping[int, Mapping[QueueRef, Mapping[str, Levels]]]
    sums: Mapping[int, Mapping[QueueRef, Sums]]
    rates: Mapping[int, Mapping[QueueRef, Sums]]
    percentiles: Mapping[int, Mapping[QueueRef, Percentiles]]
    workers: Mapping[int, Levels | None]
    paces: Mapping[QueueRef, Pace]
    """The current rates of queues with a forecast and with waiting messages."""
    ttls_ms: Mapping[QueueRef, int]
    operations: Mapping[Watched, OperationFigures] = field(default_factory=dict)
    audit: AuditFigures | None = None
    """None without a rule about it, or before the first complete audit."""
    blind: bool = False
    """The warehouse did not answer; only the time since its last answer is known."""

    def queues_of(self, rule: AlertRule) -> set[QueueRef]:
        """The queues of the rule's environment with recent telemetry."""
        by_source: Mapping[MeasurementSource, Mapping[QueueRef, object]] = {
            MeasurementSource.LEVELS: self.levels.get(rule.draft.window_ms, {}),
            MeasurementSource.SUMS: self.sums.get(rule.draft.window_ms, {}),
            MeasurementSource.RATES: self.rates.get(rule.draft.window_ms, {}),
            MeasurementSource.PERCENTILES: self.percentiles.get(rule.draft.window_ms, {}),
            MeasurementSource.AUDIT: self.audit.drifts if self.audit else {},
        }
        found = by_source.get(source_of(rule.draft.metric), {})
        scope = rule.environment
        return {
            queue
            for queue in found
            if queue.environment == scope.environment
            and queue.project == scope.project
            and queue.organization == scope.organization
        }

    def measurement_of(self, rule: AlertRule, queue: QueueRef | None) -> Measurement:
        """The rule's metric for one queue. A queue without recent telemetry is at rest."""
        metric, window_ms = rule.draft.metric, rule.draft.window_ms
        source = source_of(metric)
        if source is MeasurementSource.PIPELINE:
            lag_ms = self.freshness.lag_ms(shard_of(rule.environment, shards=self.shards))
            return Figure(value=float(lag_ms), at_rest=True)
        if source is MeasurementSource.OPERATIONS:
            figures = self.operations[rule.environment, window_ms]
            return Figure(value=figures.figure(metric), at_rest=True)
        if source is MeasurementSource.WORKERS:
            return self.workers.get(window_ms) or QUIET
        if queue is None:
            raise ValueError(f"`{metric}` is about a queue")
        if source is MeasurementSource.AUDIT:
            drift = self.audit.drifts.get(queue, 0) if self.audit else None
            return Figure(value=drift, at_rest=False)
        if source is MeasurementSource.LEVELS:
            levels = self.levels[window_ms].get(queue)
            return QUIET if levels is None else levels[metric.value]
        if source is MeasurementSource.PERCENTILES:
            waits = self.percentiles[window_ms].get(queue)
            return NOTHING if waits is None else from_percentiles(metric, waits)
        return self._figure(metric, queue, window_ms)

    def trust(self, rule: AlertRule) -> Trustworthiness:
        metric = rule.draft.metric
        if source_of(metric) in (MeasurementSource.PIPELINE, MeasurementSource.OPERATIONS):
            return Trustworthiness(stale=False, lossy=False)
        if self.blind:
            return Trustworthiness(stale=True, lossy=False)
        if source_of(metric) is MeasurementSource.AUDIT:
            audited = self.audit is not None and self.now_ms - self.audit.started_ms <= AUDIT_STALE_AFTER_MS
            return Trustworthiness(stale=not audited, lossy=False)
        if source_of(metric) is MeasurementSource.WORKERS:
            shards = {*self.worker_freshness.behind, *self.worker_freshness.off}
            stale = any(map(self.worker_freshness.is_stale, shards))
            return Trustworthiness(stale=stale, lossy=self.workers.get(rule.draft.window_ms) is None)
        shard = shard_of(rule.environment, shards=self.shards)
        frame = self.frames[rule.draft.window_ms]
        lossy = any(
            gap.metric == "queue"
            and gap.shard == shard
            and gap.span.end_ms >= frame.start_ms
            and gap.span.start_ms < frame.end_ms
            for gap in self.gaps
        )
        return Trustworthiness(stale=self.freshness.is_stale(shard), lossy=lossy)

    def _figure(self, metric: Metric, queue: QueueRef, window_ms: int) -> Figure:
        found = self.rates if source_of(metric) is MeasurementSource.RATES else self.sums
        sums = found[window_ms].get(queue, _NO_SUMS)
        span_ms = self.frames[window_ms].span_ms
        return from_sums(
            metric, sums, span_ms=span_ms, ttl_ms=self.ttls_ms.get(queue), pace=self.paces.get(queue)
        )


_FORECASTS = (Metric.DRAIN_TIME, Metric.EXPIRING)
_NO_SUMS = Sums(
    counts=dict.fromkeys(QUEUE_COUNTERS, 0),
    wait_count=0,
    wait_sum_ms=0,
    backlog=0,
    oldest_age_ms=0,
    running=0,
)


async def measure(
    warehouse: Warehouse, lifetimes: Lifetimes, rules: Sequence[AlertRule], *, now_ms: int
) -> Measured:
    """Read everything that these rules need from the warehouse."""
    fresh, worker_fresh, gaps = await asyncio.gather(
        warehouse.freshness.of("queue"), warehouse.freshness.of("worker"), warehouse.gaps.all_gaps()
    )
    wanted: dict[tuple[MeasurementSource, int], set[EnvironmentRef]] = defaultdict(set)
    for rule in rules:
        wanted[source_of(rule.draft.metric), rule.draft.window_ms].add(rule.environment)
    end_ms = _known_until(fresh, [rule.environment for rule in rules], shards=warehouse.shards)
    frames = {window_ms: frame_for(end_ms=end_ms, window_ms=window_ms) for _, window_ms in wanted}
    windows = warehouse.windows

    async def read(ask: _Ask[Found], source: MeasurementSource) -> dict[int, Found]:
        """The answers for all windows with such a rule, by window."""
        asked = {window_ms: frames[window_ms] for kind, window_ms in wanted if kind is source}
        if source is MeasurementSource.RATES:
            asked = {window_ms: frame.whole for window_ms, frame in asked.items()}
        environments = set[EnvironmentRef]().union(*(wanted[source, window_ms] for window_ms in asked))
        found = await ask(sorted(environments), set(asked.values()))
        return {window_ms: found[frame] for window_ms, frame in asked.items()}

    async def worker_lags(_: Sequence[EnvironmentRef], asked: Iterable[Frame]) -> dict[Frame, Levels | None]:
        asked = list(asked)
        return dict(zip(asked, await asyncio.gather(*map(windows.worker_lag, asked)), strict=True))

    expiries = sorted({rule.environment for rule in rules if rule.draft.metric is Metric.EXPIRING})
    audited = sorted(
        {rule.environment for rule in rules if source_of(rule.draft.metric) is MeasurementSource.AUDIT}
    )
    forecasts = sorted({rule.environment for rule in rules if rule.draft.metric in _FORECASTS})
    levels, sums, rates, percentiles, workers = await asyncio.gather(
        read(windows.levels, MeasurementSource.LEVELS),
        read(windows.sums, MeasurementSource.SUMS),
        read(windows.sums, MeasurementSource.RATES),
        read(windows.percentiles, MeasurementSource.PERCENTILES),
        read(worker_lags, MeasurementSource.WORKERS),
    )
    return Measured(
        now_ms=now_ms,
        freshness=fresh,
        worker_freshness=worker_fresh,
        gaps=gaps,
        shards=warehouse.shards,
        frames=frames,
        levels=levels,
        sums=sums,
        rates=rates,
        percentiles=percentiles,
        workers=workers,
        paces=await windows.paces(forecasts, end_ms=end_ms) if forecasts else {},
        ttls_ms=await lifetimes.ttls_ms(expiries) if expiries else {},
        audit=await _read_audit(warehouse, audited) if audited else None,
    )


async def _read_audit(warehouse: Warehouse, environments: Sequence[EnvironmentRef]) -> AuditFigures | None:
    # Read the audit first: it is written after its queues, so the queues that are read are not older.
    newest = await warehouse.audits.newest_complete()
    if newest is None:
        return None
    drifts = await warehouse.audits.drift_of_environments(environments)
    return AuditFigures(started_ms=newest.started_ms, drifts=drifts)


def measure_nothing(*, now_ms: int, since_ms: int, shards: int) -> Measured:
    """The figures while the warehouse is away: nothing has landed since its last answer."""
    behind = Freshness(now_ms=now_ms, behind=dict.fromkeys(range(shards), since_ms))
    return Measured(
        now_ms=now_ms,
        freshness=behind,
        worker_freshness=behind,
        gaps=(),
        shards=shards,
        frames={},
        levels={},
        sums={},
        rates={},
        percentiles={},
        workers={},
        paces={},
        ttls_ms={},
        blind=True,
    )


def _known_until(fresh: Freshness, environments: Sequence[EnvironmentRef], *, shards: int) -> int:
    """The end of all windows: every event before it has landed, so missing events do not look like calm.

    A stale shard does not count here; its rules are unknown anyway.
    """
    numbers = {shard_of(environment, shards=shards) for environment in environments}
    ends = [fresh.complete_until_ms(shard) for shard in numbers if not fresh.is_stale(shard)]
    return min(ends, default=fresh.now_ms)
