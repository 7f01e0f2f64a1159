"""Messages as people look at them: lists, one whole message, why it waited, its timeline."""

from __future__ import annotations

import codecs
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, Field

from weir.api.schemas.operations import OperationView
from weir.lineage.children import KEPT_MS, MAX_CHILDREN, Kinship
from weir.model.durations import DAY_MS
from weir.model.inspection import PREVIEW_BYTES, ListedMessage, MessageState


class ShownState(StrEnum):
    """The states by which messages can be listed: the states of the broker, and `queued`."""

    READY = MessageState.READY.value
    SCHEDULED = MessageState.SCHEDULED.value
    RETRYING = MessageState.RETRYING.value
    BLOCKED = MessageState.BLOCKED.value
    LEASED = MessageState.LEASED.value
    QUEUED = "queued"
    """It waits in an operation, and is not in its queue yet."""


class MomentView(BaseModel):
    """One thing that happened to a message."""

    at_ms: int
    what: str
    details: dict[str, Any]


class TimelineView(BaseModel):
    """Everything that is known about a message, oldest first."""

    message_id: str
    queue: str | None
    state: str
    items: list[MomentView]


class LeaseHolderView(BaseModel):
    """Who holds a leased message, and until when."""

    consumer: str
    until_ms: int


class ListedMessageView(BaseModel):
    """A message of a list, with the beginning of its payload."""

    message_id: str
    state: ShownState
    key: str | None
    headers: dict[str, str]
    priority: int
    attempts: int = Field(description="How often it was handed out.")
    enqueued_at_ms: int
    available_at_ms: int = Field(description="When it became or will become available.")
    expires_at_ms: int
    preview: str = Field(
        description=f"The first {PREVIEW_BYTES} bytes of its payload, as text.", examples=['{"order": 42}']
    )
    payload_bytes: int
    last_error: str | None = Field(description=f"Its first {PREVIEW_BYTES} bytes.")
    held: LeaseHolderView | None = Field(description="Null unless it is leased.")


class StateCountsView(BaseModel):
    """How many messages of a queue are in each state."""

    ready: int
    scheduled: int | None = Field(description="Null if unknown, because an older program put messages in.")
    retrying: int | None = Field(description="Null where `scheduled` is.")
    delayed: int = Field(description="Scheduled and retrying together.")
    blocked: int
    leased: int
    queued: int | None = Field(description="Messages in operations; null while PostgreSQL cannot tell.")


class MessageListView(BaseModel):
    """A page of messages. It may hold fewer than `limit`, or none, and still have a `next_cursor`."""

    state: ShownState
    counts: StateCountsView
    items: list[ListedMessageView] = Field(description="Empty for `queued`; see `operations`.")
    operations: list[OperationView] = Field(description="For `queued`: the operations, newest first.")
    scanned: int = Field(description="How many messages were looked at for this page.")
    next_cursor: str | None = Field(description="Pass as `cursor` to go on; null at the end.")


class AttemptView(BaseModel):
    """An attempt that a worker recorded; attempts of consumers over HTTP are not recorded."""

    attempt: int
    worker: str
    started_at_ms: int
    finished_at_ms: int
    ending: str = Field(examples=["done"])
    error: str


class WaitingMessageView(BaseModel):
    """A message that waits in its queue or is leased."""

    payload: Any = Field(description="The payload if it is JSON, else null; see payload_base64.")
    payload_base64: str | None = Field(description="The payload if it is not JSON.")
    payload_bytes: int
    headers: dict[str, str]
    key: str | None
    idempotency_key: str | None
    priority: int
    attempts: int = Field(description="How often it was handed out.")
    enqueued_at_ms: int
    available_at_ms: int = Field(description="When it became or will become available.")
    expires_at_ms: int
    last_error: str | None
    held: LeaseHolderView | None = Field(description="Null unless it is leased.")
    ahead: int | None = Field(
        description="How many messages of its state are before it; if it is blocked, only of its key. Null "
        "if it is leased."
    )
    behind_id: str | None = Field(description="The head of its key, if it is blocked and the head is known.")


class RelativeView(BaseModel):
    """The parent or a child of a message."""

    message_id: str
    kind: Kinship = Field(
        description="How the younger came from the older: `chained` by its handler or its queue's `enqueue`, "
        "`redriven` from its dead letter, `replayed` from a log, or `copied` to tell a dead letter queue of "
        "its death."
    )
    queue: str | None = Field(description="Its queue, if that is known.")
    at_ms: int | None = Field(description="When the younger of the two was made, if that is known.")


WaitReason = Literal[
    "operation_queue",
    "scheduled",
    "backoff",
    "blocked",
    "paused",
    "queue_limit",
    "environment_limit",
    "unasked",
    "turn",
    "unknown",
]


class WaitPartView(BaseModel):
    """For how long one reason kept a message waiting."""

    reason: WaitReason
    waited_ms: int
    text: str = Field(examples=["paused 2.1 s"])


class LifeAttemptView(BaseModel):
    """One attempt of a message that ended, as the broker saw it."""

    attempt: int
    started_at_ms: int
    ended_at_ms: int
    end: str = Field(description="acked, failed, rejected, lapsed or cancelled.", examples=["acked"])
    consumer: str


class LifeView(BaseModel):
    """The life of a message that ended."""

    key: str | None
    outcome: Literal["acked", "dead", "expired", "cancelled"]
    reason: str | None = Field(description="Why it died; null if it was acked or cancelled.")
    enqueued_at_ms: int
    available_at_ms: int = Field(description="When it was first due.")
    handed_out_at_ms: int | None = Field(description="When its last attempt began.")
    ended_at_ms: int
    priority: int
    attempts: int = Field(description="How often it was handed out.")
    last_attempts: list[LifeAttemptView] = Field(description="The last 20 attempts.")
    handler_ms: int | None = Field(
        description="How long the handler of the last attempt ran, as its worker measured it."
    )
    leased_ms: int = Field(description="For how long it was leased, in all attempts.")
    parts: list[WaitPartView] = Field(description="What it waited for. Parts of 0 are left out.")
    blocked_by_id: str | None = Field(description="The message whose end made it the head of its key.")
    payload_bytes: int


class FoundByKeyView(BaseModel):
    """The message that was pushed with an idempotency key."""

    message_id: str
    queue: str


class MessageView(TimelineView):
    """Everything about one message: where it is now, its attempts, and what happened to it."""

    state: str = Field(
        description="ready, scheduled, retrying, blocked, leased; queued: in an operation; done, dead, "
        "redriven, cancelled; unknown: it ended, but its end is not recorded; landing: it is not here, and "
        "lives of messages that ended just now have not landed yet.",
        examples=["ready"],
    )
    message: WaitingMessageView | None = Field(description="Null unless it waits in its queue or is leased.")
    life: LifeView | None = Field(
        description="Null until it ended and its life has landed, which takes about a second. Lives are kept "
        "for 30 days; a queue's `history` may leave messages out."
    )
    attempts: list[AttemptView] = Field(description="Attempts that workers recorded, oldest first.")
    result: Any = Field(description="Given with its ack, and kept for a day; null if there is none.")
    progress: Any = Field(description="The last that its handler reported; null if none, or with a result.")
    operation_id: str | None = Field(description="The operation that it waits in, if it is queued.")
    see: str | None = Field(description="Where to read on: its operation or its dead letter.")
    trace_id: str | None = Field(description="The trace that it was made in, if its headers name one.")
    trace_url: str | None = Field(description="The page of that trace, if the server knows where it is.")
    parent: RelativeView | None = Field(description="The message that it came from.")
    children: list[RelativeView] = Field(
        description=f"Messages that came from it, at most {MAX_CHILDREN} beside a redrive. They are known "
        f"for {KEPT_MS // DAY_MS} days."
    )
    more_children: bool = Field(description="Whether there are more children.")


class WhyView(BaseModel):
    """Why a message waited: until now, until it was last handed out, or until it ended."""

    message_id: str
    queue: str
    state: str = Field(description="As for the message itself.", examples=["ready"])
    enqueued_at_ms: int = Field(description="If it is queued: when its operation was stored.")
    until_ms: int
    waited_ms: int = Field(description="All parts together.")
    leased_ms: int = Field(description="For how long it was leased before that, in earlier attempts.")
    parts: list[WaitPartView] = Field(
        description="At each instant the first reason that holds counts. Parts of 0 are left out."
    )
    behind_id: str | None = Field(description="The head of its key, if it is blocked and the head is known.")


def listed_view(message: ListedMessage) -> ListedMessageView:
    same = set(ListedMessageView.model_fields) - {"state", "headers", "preview", "held"}
    held = message.held
    return ListedMessageView(
        **{name: getattr(message, name) for name in same},
        state=ShownState(message.state.value),
        headers=dict(message.headers),
        preview=_text(message.preview),
        held=None if held is None else LeaseHolderView(consumer=held.consumer, until_ms=held.until_ms),
    )


def _text(preview: bytes) -> str:
    """The bytes as text; a character that the cut divided is left out."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(preview)
