"""Reads the state of the pipeline from its stores, for `weir pipeline status` and the API."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weir.errors import WarehouseUnavailable
from weir.model.wording import amount, moment
from weir.telemetry.progress import PipelineStatus, StreamLag, read_lags, read_status
from weir.telemetry.store import StreamStore
from weir.warehouse.audit_reader import AuditReader, GapReport
from weir.warehouse.connection import ClickHouseConnection

STALE_MS = 15_000
"""A pipeline that has not published its status for this long counts as not running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffShard:
    """A shard whose metrics are off."""

    shard: int
    since_ms: int
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineView:
    """The pipeline from outside."""

    running: bool
    """It published its status within `STALE_MS`, and is neither paused nor stopped."""
    status: PipelineStatus | None
    streams: Sequence[StreamLag]
    lag_events: int
    lag_s: float
    off: Sequence[OffShard]
    """The shards whose metrics are off."""
    gaps: Sequence[GapReport] | None
    """None while ClickHouse does not answer, like the rejects."""
    rejects: Sequence[Mapping[str, Any]] | None
    """How many events were corrected or set aside, by metric, reason and action."""


def read_pipeline(
    *, redis_url: str, clickhouse_url: str, metrics: Sequence[str], shards: int, answer_s: float = 5.0
) -> PipelineView:
    """Read the state of the pipeline from the stores; needs neither Spark nor a running pipeline.

    It shows `metrics`, and the metrics that the pipeline names in its own status.
    """
    store = StreamStore(redis_url, timeout_s=answer_s)
    now_ms = time.time_ns() // 1_000_000
    try:
        status = read_status(store)
        # The pipeline may have metrics of users' modules, which this process need not be able to import.
        names = dict.fromkeys((*metrics, *(status.metrics if status else ())))
        lags = read_lags(store, metrics=names, shards=shards, now_ms=now_ms)
        switches = store.read_switches(shards=shards)
    finally:
        store.close()
    gaps, rejects = _read_gaps_and_rejects(clickhouse_url, answer_s)
    return PipelineView(
        running=status is not None and is_running(status, now_ms=now_ms),
        status=status,
        streams=lags,
        lag_events=sum(lag.events for lag in lags),
        lag_s=max((lag.seconds for lag in lags), default=0.0),
        off=[
            OffShard(shard=one.shard, since_ms=one.since_ms, by=one.by, reason=one.reason)
            for one in switches
            if one.off
        ],
        gaps=gaps,
        rejects=rejects,
    )


def is_running(status: PipelineStatus, *, now_ms: int) -> bool:
    """Whether a pipeline published this a moment ago, and is neither paused nor stopped."""
    fresh = now_ms - status.updated_ms < STALE_MS
    return fresh and status.state in ("starting", "running", "retrying")


def shown(view: PipelineView) -> str:
    """The view as text for the terminal."""
    width = max((len(lag.metric) for lag in view.streams), default=0)
    lines = [
        _headline(view),
        f"waiting: {amount(view.lag_events, 'event')}, the first for {view.lag_s:.1f} s",
    ]
    lines += [
        f"  {lag.metric:<{width}} shard {lag.shard:<4} at {lag.position:<22} {lag.events:>8} "
        f"{lag.seconds:8.1f} s"
        for lag in view.streams
    ]
    lines += [
        f"  metrics of shard {one.shard} are off since {moment(one.since_ms)}, by {one.by}: {one.reason}"
        for one in view.off
    ]
    for gap in view.gaps or ():
        count = gap.entries if gap.entries is not None else f"messages {dict(gap.lost)}"
        ids = f"{gap.from_id} to {gap.to_id or 'now'}"
        lines.append(f"  gap in {gap.metric} shard {gap.shard}: {ids}, lost {count}: {gap.reason}")
    lines += [
        f"  {amount(reject['events'], 'event')} of {reject['metric']} {reject['action']}: {reject['reason']}"
        for reject in view.rejects or ()
    ]
    return "\n".join(lines)


def _headline(view: PipelineView) -> str:
    status = view.status
    if status is None:
        return "the pipeline has never run"
    died = (
        f"; it died {amount(status.deaths, 'time')}, last at {moment(status.died_ms)}"
        if status.deaths
        else ""
    )
    if not view.running:
        return f"the pipeline does not run; it was last {status.state} {status.error}".rstrip() + died
    return (
        f"{status.state}; batch {status.batch}: {amount(status.batch_events, 'event')} "
        f"in {status.batch_s:.2f} s; since it started {amount(status.events, 'event')}, "
        f"{status.rejected} noted, {amount(status.failures, 'failure')}{died}"
        + (f"; nothing has landed since: {status.error}" if status.error else "")
    )


def _read_gaps_and_rejects(
    url: str, answer_s: float
) -> tuple[list[GapReport] | None, list[dict[str, Any]] | None]:
    """The gaps and rejects in the warehouse; None for both if it does not answer."""
    try:
        connection = ClickHouseConnection(url, timeout_s=answer_s, connect_timeout_s=answer_s)
    except WarehouseUnavailable:
        return None, None
    try:
        reader = AuditReader(connection)
        return reader.gaps(limit=20), reader.rejects()
    except WarehouseUnavailable:
        return None, None
    finally:
        connection.close()
