"""Answers of the sources' routes outside `/api/v1`, in the sources' words."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from weir.api.schemas.dead_letters import REPLAY_WORDS, DeadLetterFacts, letter_document
from weir.deadletters.dead_letter import DeadLetter
from weir.deadletters.summary import ConsumerStatus


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


class ConsumerDeadCount(BaseModel):
    """The number of dead messages of a consumer. A queue without a channel is a consumer of channel ""."""

    channelId: str = Field(examples=["order-events"])  # noqa: N815
    channelName: str = Field(examples=["Order Events"])  # noqa: N815
    consumerId: str = Field(examples=["payment-service"])  # noqa: N815
    consumerName: str = Field(examples=["Payment Service"])  # noqa: N815
    deadCount: int = Field(examples=[23469224])  # noqa: N815
    organization: str
    project: str
    environment: str
    queue: str


class DLQStatus(BaseModel):
    consumers: list[ConsumerDeadCount]


class DeadJobView(DeadLetterFacts):
    """A dead letter in the sources' words: a redrive is a replay."""

    replay_of: str | None = Field(description="The dead letter that this message was a replay of.")
    replay_id: str | None
    replayed_at_ms: int | None
    replay_task: str | None
    replay_result: str | None = Field(
        description="died, acked, cancelled or waiting; null if it was not replayed."
    )


class DeadJobList(BaseModel):
    """The dead messages of a consumer, as the routes outside `/api/v1` have always called them."""

    letters: list[DeadJobView]
    next_before: str | None = Field(description="Pass as `before` for the next page; null on the last.")


class Requeued(BaseModel):
    """The outcome of a request about all dead messages of a consumer."""

    requeued: int
    done: bool = Field(description="false: the bulk action goes on; `task` is its id.")
    task: str


class Deleted(BaseModel):
    deleted: int
    done: bool = Field(description="false: the bulk action goes on; `task` is its id.")
    task: str


def status_document(status: ConsumerStatus) -> dict[str, Any]:
    """A `ConsumerDeadCount`, as JSON has it."""
    return {
        "channelId": status.channel_id,
        "channelName": status.channel_name,
        "consumerId": status.consumer_id,
        "consumerName": status.consumer_name,
        "deadCount": status.dead_count,
        "organization": status.organization,
        "project": status.project,
        "environment": status.environment,
        "queue": status.queue,
    }


def job_document(letter: DeadLetter, *, redrive_result: str | None = None) -> dict[str, Any]:
    """A `DeadJobView` as a document."""
    document = letter_document(letter, redrive_result=redrive_result)
    return {REPLAY_WORDS.get(name, name): value for name, value in document.items()}
