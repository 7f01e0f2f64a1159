"""The operation queue: its operations and statistics."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from weir.operations.model import OperationStatus
from weir.operations.store import MOST_PARTITIONS


class OperationView(BaseModel):
    """One queued operation."""

    id: str
    operation_type: str
    status: OperationStatus
    priority: int = Field(description="1 is critical, 10 can wait.")
    queue: str
    partition: str | None
    messages: int
    size_bytes: int
    created_ms: int
    processing_started_ms: int | None
    processed_ms: int | None
    claimed_by_worker: str | None
    timeout_ms: int
    retry_count: int
    max_retries: int
    error_message: str | None
    last_error_at_ms: int | None = Field(description="When `error_message` was written.")
    result: dict[str, Any] | None = Field(description="What became of each message, once it is completed.")
    latency_seconds: float
    queue_position: int | None = Field(default=None, description="Null unless it is pending.")
    estimated_wait_ms: int | None = None


class OperationList(BaseModel):
    operations: list[OperationView]
    next_before: int | None = Field(description="Ask with `before` to go on; null at the end.")


class OperationStat(BaseModel):
    operation_type: str
    priority: int
    status: OperationStatus
    count: int
    oldest_ms: int
    newest_ms: int
    avg_latency_seconds: float


class FullPartition(BaseModel):
    """A partition of a queue with pushes that wait."""

    queue: str
    partition: str | None = Field(description="The ordering key; null for messages without one.")
    operations: int
    messages: int
    oldest_age_ms: int
    last_error: str | None = Field(description="The last error of its oldest operation, if it was tried.")
    last_error_at_ms: int | None


class SystemHealth(BaseModel):
    """The pressure on the answering process."""

    pool_utilization: float
    pool_waiting: int = Field(description="Callers in this process that wait for a connection to PostgreSQL.")
    in_flight: int
    limit: int
    event_loop_lag_ms: float
    queue_depth: int
    drain_per_second: float
    decision: str = Field(description="What admission would decide about a push now: execute, queue, reject.")


class OperationStats(BaseModel):
    stats: list[OperationStat]
    fullest_partitions: list[FullPartition] = Field(
        description="The partitions where most pushes wait, fullest first.", max_length=MOST_PARTITIONS
    )
    system_health: SystemHealth
