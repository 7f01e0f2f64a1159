"""The state of the pipeline: streams, lag and gaps."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class StreamView(BaseModel):
    metric: str = Field(examples=["queue"])
    shard: int
    position: str = Field(description="The id of the newest event that has landed.")
    last_id: str
    events: int = Field(description="How many wait, at most.")
    seconds: float = Field(description="How long the first of them has waited.")


class GapView(BaseModel):
    """Events that were trimmed before they were read: unknown, and shown so."""

    metric: str
    shard: int
    from_id: str
    to_id: str
    from_ms: int
    to_ms: int
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
