"""The state of the pipeline: streams, lag and gaps."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from weir.warehouse.tables import GapKind


class StreamView(BaseModel):
    metric: str = Field(examples=["queue"])
    shard: int
    position: str = Field(description="The id of the newest event that has landed.")
    last_id: str
    events: int = Field(description="How many wait, at most.")
    seconds: float = Field(description="How long the first of them has waited.")


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


class PipelineStatusView(BaseModel):
    running: bool
    status: dict[str, Any] | None = Field(description="The pipeline about itself; null if it never ran.")
    streams: list[StreamView]
    lag_events: int
    lag_s: float
    gaps: list[GapView] | None = Field(description="null while ClickHouse does not answer.")
