"""Requests and answers about dead letters."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from weir.api.previews import shown_json, shown_text
from weir.api.schemas.shared import Name, Schema
from weir.deadletters.bulk_actions import (
    BulkAction,
    BulkActionKind,
    NewBulkAction,
)
from weir.deadletters.counted import CountedBy
from weir.deadletters.dead_letter import DeadLetter
from weir.deadletters.filters import Filter
from weir.deadletters.groups import Group
from weir.deadletters.rates import MAX_RATE_PER_S, NO_LIMITS, SendLimits
from weir.deadletters.samples import LetterSample
from weir.model.durations import DAY_MS
from weir.model.limits import MAX_BATCH, MAX_TIME_MS
from weir.spec.cel import MAX_LENGTH

Moment = Annotated[StrictInt, Field(ge=0, le=MAX_TIME_MS)]
Cel = Annotated[StrictStr, Field(min_length=1, max_length=MAX_LENGTH)]


All = Annotated[
    StrictBool,
    Field(
        description="Take every dead letter of the environment; needed without a filter, except in a dry run."
    ),
]


class DeadCountView(BaseModel):
    """How many messages of a consumer are dead. A queue without a channel is a consumer of channel ""."""

    channel_id: str
    channel_name: str
    consumer_id: str
    consumer_name: str
    queue: str
    dead_count: int
    last_checked_at_ms: int


class DeadCountList(BaseModel):
    items: list[DeadCountView]


class RedrivenView(BaseModel):
    new_message_id: str = Field(description="The message that the dead letter became.")


REPLAY_WORDS = {
    "redrive_of": "replay_of",
    "redrive_id": "replay_id",
    "redriven_at_ms": "replayed_at_ms",
    "redrive_task": "replay_task",
    "redrive_result": "replay_result",
}
"""How a redrive is spelled in the store and in the sources' routes."""


class DeadLetterFacts(BaseModel):
    id: str
    queue: str
    channel_id: str
    consumer_id: str
    reason: str = Field(examples=["attempts"])
    error: str
    fingerprint: str
    attempts: int
    max_attempts: int
    enqueued_at_ms: int
    died_at_ms: int
    key: str | None
    priority: int
    headers: dict[str, str]
    payload: Any = Field(description="The payload if it is JSON, else null; see payload_base64.")
    payload_base64: str | None = Field(description="The payload if it is not JSON.")
    payload_bytes: int


class DeadLetterView(DeadLetterFacts):
    redrive_of: str | None = Field(description="The dead letter that this message was a redrive of.")
    redrive_id: str | None = Field(description="The message that it became.")
    redriven_at_ms: int | None
    redrive_task: str | None = Field(description="The bulk action that sent it back, if one did.")
    redrive_result: str | None = Field(
        description="died, acked, cancelled or waiting; null if it was not redriven."
    )


class DeadLetterList(BaseModel):
    items: list[DeadLetterView] = Field(description="A page ends after about 1 MiB of letters.")
    next_before: str | None = Field(description="Pass as `before` for the next page; null on the last.")


class GroupView(BaseModel):
    fingerprint: str
    template: str = Field(examples=["order <n> not found"])
    dead_count: int
    total_count: int = Field(description="All deaths so far, also of letters that were redriven or purged.")
    first_seen_ms: int
    last_seen_ms: int
    rate_per_h: float
    queues: list[str]
    sample_id: str
    sample_error: str


class GroupList(BaseModel):
    items: list[GroupView]


class FilterBody(Schema):
    """A filter of dead letters; every given condition must hold."""

    queue: Name | None = None
    fingerprint: Annotated[StrictStr, Field(max_length=64)] | None = None
    reason: Literal["attempts", "rejected", "expired", "lapsed"] | None = None
    died_from_ms: Moment | None = None
    died_to_ms: Moment | None = None
    expression: Cel | None = Field(
        default=None, description="CEL over a dead letter.", examples=["payload.amount > 100"]
    )

    def filter(self, *, include_unexhausted: bool = False) -> Filter:
        return Filter(**self.model_dump(), include_unexhausted=include_unexhausted)


Rate = Annotated[StrictFloat | StrictInt, Field(gt=0, le=MAX_RATE_PER_S)]


class SendLimitsBody(Schema):
    """How carefully a redrive or a replay from a log sends messages."""

    rate_per_s: Rate | None = None
    canary: Annotated[StrictInt, Field(ge=0, le=MAX_BATCH)] = NO_LIMITS.canary
    canary_tolerance: Annotated[StrictFloat | StrictInt, Field(ge=0, lt=1)] = NO_LIMITS.canary_tolerance
    canary_patience_ms: Annotated[StrictInt, Field(ge=1, le=DAY_MS)] = NO_LIMITS.canary_patience_ms

    def limits(self) -> SendLimits:
        return SendLimits(**{name: getattr(self, name) for name in SendLimitsBody.model_fields})


class CountedBody(Schema):
    """A bulk action that may take what a dry run counted."""

    from_dry_run: Annotated[StrictStr, Field(max_length=64)] | None = Field(
        default=None,
        description="Id of a completed dry run: take what it counted, and nothing that came after it. If the "
        "request says what is meant as well, it must say the same (409).",
    )

    def counted(self, *selection: str) -> CountedBy | None:
        """The dry run, and whether it says itself what is meant, as it does with any of these members."""
        if self.from_dry_run is None:
            return None
        return CountedBy(dry_run=self.from_dry_run, is_stated=bool(self.model_fields_set & {*selection}))


class BulkActionBody(CountedBody):
    """The members that redrives and purges have in common."""

    filter: FilterBody = FilterBody()
    all: All = False
    dry_run: StrictBool = False
    rate_per_s: Rate | None = None


class RedriveBody(SendLimitsBody, BulkActionBody):
    """Send dead letters back to their queues."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"filter": {"queue": "orders"}, "canary": 10, "rate_per_s": 100}]}
    )

    patch: Cel | None = Field(
        default=None,
        description="CEL whose answer, an object, is merged into each payload. After `replace:` the answer "
        "is the whole payload.",
        examples=['{"currency": "EUR"}'],
    )

    def bulk_action(self) -> NewBulkAction:
        return NewBulkAction(
            kind=BulkActionKind.REDRIVE,
            filter=self.filter.filter(),
            everything=self.all,
            dry_run=self.dry_run,
            limits=self.limits(),
            patch=self.patch,
            counted=self.counted("filter", "all", "patch"),
        )


class PurgeBody(BulkActionBody):
    """Delete dead letters."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"filter": {"queue": "orders"}}]})

    include_unexhausted: StrictBool = Field(
        default=False, description="Also letters that died before they had used up their attempts."
    )

    def bulk_action(self) -> NewBulkAction:
        return NewBulkAction(
            kind=BulkActionKind.PURGE,
            filter=self.filter.filter(include_unexhausted=self.include_unexhausted),
            everything=self.all,
            dry_run=self.dry_run,
            limits=SendLimits(rate_per_s=self.rate_per_s),
            counted=self.counted("filter", "all", "include_unexhausted"),
        )


class TaskView(BaseModel):
    id: str
    kind: Literal["redrive", "purge", "cancel", "replay"]
    state: str = Field(examples=["running"])
    dry_run: bool
    filter: dict[str, Any]
    rate_per_s: float | None
    canary: int
    canary_tolerance: float
    canary_state: str
    patch: str | None
    high_water: int
    expected: int = Field(
        description="How many letters, or messages of a cancellation or a replay, are looked at, at most."
    )
    scanned: int
    matched: int
    done: int
    skipped: int
    died_again: int
    samples: list[str]
    note: str | None
    problem: str | None
    created_by: str
    created_at_ms: int
    started_at_ms: int | None
    finished_at_ms: int | None


class TaskList(BaseModel):
    items: list[TaskView]


class SampleView(BaseModel):
    """A dead letter that matched, before and after the patch."""

    id: str
    queue: str
    error: str
    payload: Any = Field(description="The payload if it is JSON, else null.")
    patched: Any = Field(
        description="The payload after the patch; null without one, or if there is a problem."
    )
    problem: str | None = Field(
        description="Why the patch does not work on this letter: it would be skipped."
    )


class SampleList(BaseModel):
    items: list[SampleView]


class AuditView(BaseModel):
    started_at_ms: int
    finished_at_ms: int
    consumers: int
    letters: int
    drift: int = Field(description="Repaired differences; 0 unless somebody changed tables by hand.")


def letter_document(letter: DeadLetter, *, redrive_result: str | None = None) -> dict[str, Any]:
    """A `DeadLetterView` as a document: the payload is written into the answer as it came, without being read
    into values and checked."""
    own = {"payload", "payload_base64", "payload_bytes", "queue", "error", "headers", *REPLAY_WORDS}
    members = {name: getattr(letter, name) for name in set(DeadLetterView.model_fields) - own}
    members |= {name: getattr(letter, stored) for name, stored in REPLAY_WORDS.items()}
    if redrive_result is not None:
        members["redrive_result"] = redrive_result
    payload = shown_json(letter.payload)
    return members | {
        "error": letter.error_text,
        "headers": {shown_text(name): shown_text(value) for name, value in letter.headers.items()},
        "queue": letter.queue.queue,
        "payload": payload,
        "payload_base64": base64.b64encode(letter.payload).decode() if payload is None else None,
        "payload_bytes": len(letter.payload),
    }


def group_view(group: Group) -> GroupView:
    return GroupView(**{name: getattr(group, name) for name in GroupView.model_fields})


def sample_document(sample: LetterSample) -> dict[str, Any]:
    """A `SampleView` as a document."""
    letter = sample.letter
    return {
        "id": letter.id,
        "queue": letter.queue.queue,
        "error": letter.error_text,
        "payload": shown_json(letter.payload),
        "patched": None if sample.patched is None else shown_json(sample.patched),
        "problem": sample.problem,
    }


def task_view(action: BulkAction) -> TaskView:
    members = {name: getattr(action, name) for name in TaskView.model_fields}
    return TaskView(**members | {"filter": action.described_filter(), "samples": list(action.samples)})
