"""What the sources' routes outside `/api/v1` take and answer."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class AdminQueue(BaseModel):
    name: str
    depth: int
    in_flight: int
    oldest_message_age_seconds: float
    messages_per_minute: float | None = Field(
        description="Handed out over the last minute; null while telemetry is stale or out of reach."
    )
    dead_letters: int


class AdminQueues(BaseModel):
    queues: list[AdminQueue]


class Preview(BaseModel):
    payload: Any = Field(description="The payload, or the beginning of a large one.")


class DeadLetterPreview(BaseModel):
    id: str
    failed_at: int = Field(description="Seconds since the epoch.", examples=[1_708_000_000])
    error: str = Field(examples=["Command failed: guard rejected"])
    attempts: int
    fingerprint: str
    preview: Preview


class DeadLetterPreviews(BaseModel):
    dead_letters: list[DeadLetterPreview]
    next_before: str | None


class Replayed(BaseModel):
    ok: bool = True
    new_message_id: str


class Done(BaseModel):
    ok: bool = True


class PublishedTo(BaseModel):
    consumerId: str  # noqa: N815
    status: str
    messageId: str | None  # noqa: N815
    operationId: str | None = None  # noqa: N815
    error: str | None = None


class Published(BaseModel):
    idempotency_key: str
    consumers: list[PublishedTo]
