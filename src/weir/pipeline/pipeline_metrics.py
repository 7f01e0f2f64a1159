"""Counts what a pipeline process does, for Prometheus and for the status in Redis."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from weir.pipeline.batches import Landed
from weir.telemetry.progress import PipelineStatus, StreamLag

STATES = ("starting", "running", "retrying", "paused", "stopped")


class PipelineMetrics:
    """The counts of one pipeline process."""

    def __init__(self, registry: CollectorRegistry, *, metrics: Sequence[str]) -> None:
        self._status = PipelineStatus(
            state="stopped", updated_ms=_now_ms(), since_ms=_now_ms(), metrics=tuple(metrics)
        )
        self._registry = registry

        def count(name: str, text: str) -> Counter:
            return Counter(name, text, ("metric",), registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self._events = count("weir_metrics_events_total", "Events that landed.")
        self._rows = count("weir_metrics_rows_total", "Landing rows that were inserted.")
        self._rejected = count("weir_metrics_rejected_total", "Events set aside, clamped or late.")
        self._gaps = count("weir_metrics_stream_gaps_total", "Spans dropped before they were read.")
        self._duration = Histogram(
            "weir_metrics_batch_duration_seconds",
            "From the start of a batch's tasks to their end.",
            registry=registry,
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        self._failures = Counter(
            "weir_metrics_query_failures_total", "Queries that ended in an error.", registry=registry
        )
        self._newest = gauge(
            "weir_metrics_newest_event_timestamp_seconds", "Time of the newest event that landed."
        )
        self._state = gauge("weir_metrics_pipeline_state", "1 for the current state.", "state")
        self._lag_events = gauge("weir_metrics_stream_lag_events", "Events that wait.", "metric", "shard")
        self._lag_seconds = gauge(
            "weir_metrics_stream_lag_seconds", "How long the oldest waiting event waits.", "metric", "shard"
        )
        self._audit_complete = gauge(
            "weir_metrics_audit_complete", "1 if the newest audit compared everything, 0 if it could not."
        )
        self.enter("stopped")

    def count_batch(self, number: int, rows: Sequence[Landed]) -> None:
        """Count a batch that is done."""
        events = sum(row.events for row in rows)
        newest_ms = max((row.newest_ms for row in rows), default=0)
        batch_s = max((row.busy_s for row in rows), default=0.0)
        for row in rows:
            self._events.labels(row.metric).inc(row.events)
            self._rows.labels(row.metric).inc(row.rows)
            self._rejected.labels(row.metric).inc(row.rejected)
            self._gaps.labels(row.metric).inc(row.gaps)
        self._duration.observe(batch_s)
        self._newest.set(max(newest_ms, self._status.newest_ms) / 1_000)
        self._update(
            batch=number,
            batch_events=events,
            batch_s=round(batch_s, 4),
            events=self._status.events + events,
            rejected=self._status.rejected + sum(row.rejected for row in rows),
            gaps=self._status.gaps + sum(row.gaps for row in rows),
            newest_ms=max(newest_ms, self._status.newest_ms),
        )

    def enter(self, state: str, *, error: str = "") -> None:
        """Note that the supervisor entered a state."""
        for known in STATES:
            self._state.labels(known).set(known == state)
        self._update(state=state, error=error, since_ms=_now_ms())

    def clear_error(self) -> None:
        """Note that the last error is over."""
        self._update(error="")

    def continue_from(self, previous: PipelineStatus | None) -> None:
        """Go on from the last status on these streams; if it is not that of a stop, its process died."""
        if previous is None:
            return
        died = previous.state != "stopped"
        self._update(
            deaths=previous.deaths + died,
            died_ms=previous.updated_ms if died else previous.died_ms,
        )

    def count_failure(self) -> None:
        self._failures.inc()
        self._update(failures=self._status.failures + 1)

    def set_lags(self, lags: Iterable[StreamLag]) -> None:
        for lag in lags:
            self._lag_events.labels(lag.metric, str(lag.shard)).set(lag.events)
            self._lag_seconds.labels(lag.metric, str(lag.shard)).set(lag.seconds)

    def note_audit(self, *, drift: int, started_ms: int) -> None:
        """Note an audit that could finish."""
        self._audit_complete.set(1)
        self._drift.set(drift)
        self._audited.set(started_ms / 1_000)

    def note_incomplete_audit(self) -> None:
        """Note an audit that could not finish; the drift stays that of the newest complete one."""
        self._audit_complete.set(0)

    @cached_property
    def _drift(self) -> Gauge:
        # Registered by the first complete audit, because a gauge without a value would say 0.
        return Gauge(
            "weir_metrics_drift",
            "Unexplained differences in the newest complete audit.",
            registry=self._registry,
        )

    @cached_property
    def _audited(self) -> Gauge:
        return Gauge(
            "weir_metrics_audit_timestamp_seconds",
            "When the newest complete audit began.",
            registry=self._registry,
        )

    @property
    def status(self) -> PipelineStatus:
        """The current status, with the time of this call."""
        self._update()
        return self._status

    def _update(self, **changes: Any) -> None:
        self._status = replace(self._status, **changes, updated_ms=_now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
