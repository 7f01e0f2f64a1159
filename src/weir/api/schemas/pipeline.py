"""The state of the pipeline: streams, lag and gaps."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from weir.pipeline.switching import LossSource
from weir.warehouse.tables import GapKind


class StreamView(BaseModel):
    metric: str = Field(examples=["queue"])
    shard: int
    position: str = Field(description="The id of the newest event that has landed.")
    last_id: str
    events: int = Field(description="How many events wait, at most.")
    seconds: float = Field(description="How long the first event has waited.")


class GapView(BaseModel):
    """A span without events: they were trimmed before they were read, or metrics were off."""

    metric: str
    shard: int
    kind: GapKind
    from_id: str
    to_id: str = Field(description="Empty while the gap is open.")
    open: bool
    from_ms: int
    to_ms: int = Field(description="For an open gap, now.")
    reason: str
    entries: int | None
    lost: dict[str, int]


class OffShardView(BaseModel):
    shard: int
    since_ms: int
    by: str
    reason: str


class PipelineStatusView(BaseModel):
    running: bool
    status: dict[str, Any] | None = Field(description="The pipeline's own report; null if it never ran.")
    streams: list[StreamView]
    lag_events: int
    lag_s: float
    off: list[OffShardView] = Field(description="The shards whose metrics are off.")
    gaps: list[GapView] | None = Field(description="null while ClickHouse does not answer.")


class MetricsSwitchBody(BaseModel):
    """Whether to switch metrics on or off, in all shards."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"on": False, "reason": "a load test"}]}
    )

    on: StrictBool
    reason: StrictStr = Field(
        default="",
        max_length=500,
        description="Why; needed to switch off, shown where figures are missing.",
    )


class ShardSwitchView(BaseModel):
    shard: int
    off: bool
    since_ms: int | None = Field(description="When it was switched last; null if it never was.")
    by: str
    reason: str


class SilentShardView(BaseModel):
    shard: int
    error: str


class OffSpanView(BaseModel):
    """A span in which the metrics of a shard were off."""

    shard: int
    from_ms: int
    to_ms: int | None = Field(description="null while they are off.")
    by: str
    reason: str
    ended_by: str


class LossView(BaseModel):
    """The counts of queues in the newest off span, which the metrics do not have."""

    counts: dict[str, int] = Field(examples=[{"enqueued": 12}])
    source: LossSource = Field(
        description="The live odometers while metrics are off; the audit once they are on again."
    )
    landed: bool = Field(description="false while earlier events have not landed; the counts include them.")


class MetricsSwitchView(BaseModel):
    off: bool = Field(description="The metrics of at least one shard are off.")
    mixed: bool = Field(description="The shards differ, because a change was interrupted; repeat it.")
    since_ms: int | None = Field(description="null if metrics never were switched.")
    by: str
    reason: str
    shards: list[ShardSwitchView]
    silent: list[SilentShardView] = Field(description="Shards that do not answer.")
    spans: list[OffSpanView] = Field(description="The newest off spans of each shard, newest first.")
    recorded: bool = Field(description="Whether ClickHouse knows the spans; if not, the pipeline tells it.")
    loss: LossView | None = Field(description="null if they were never off, or a store does not answer.")


class MetricsAuditView(BaseModel):
    """One comparison of odometers, tiers and live queues."""

    number: int
    started_at_ms: int
    drift: int | None = Field(
        description="Unexplained differences in the chosen environments; null if the audit could not finish."
    )
    reason: str = Field(description="Why it could not finish; otherwise empty.")
    ledger_drift: int | None = Field(
        description="Differences between counts and odometers. Null, like all below, for one environment."
    )
    tier_drift: int | None = Field(description="Differences between the tiers.")
    live_drift: int | None = Field(description="Counts of live queues that never arrived.")
    queues: int | None
    events: int | None
    held_ms: int | None = Field(description="For how long the audit held the pipeline.")
    took_ms: int | None


class DriftingQueueView(BaseModel):
    """What the newest complete audit found wrong with one queue."""

    organization: str
    project: str
    environment: str
    queue: str
    drift: int
    counters: dict[str, int] = Field(
        description="By counter; positive is lost, negative was counted twice.", examples=[{"enqueued": 3}]
    )
    tier_drift: int
    live_drift: int
    text: str = Field(description="The same in words.", examples=["3 enqueued lost"])


class PipelineAuditView(BaseModel):
    latest: MetricsAuditView | None = Field(description="The newest audit; null before the first.")
    drifting: list[DriftingQueueView] = Field(
        description="The worst 100 queues of the newest complete audit."
    )
    items: list[MetricsAuditView] = Field(description="The history, newest first. It is kept for 90 days.")
    next_before: int | None = Field(description="Pass as `before` for the next page; null on the last.")
