"""The shapes of the hot path for the OpenAPI description; at run time `Fields` checks the same rules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from weir.api.routes.pop import PayloadEncoding
from weir.api.routes.push import MAX_SLOT_BYTES
from weir.api.schemas.shared import Name, Problem, Schema
from weir.model.limits import (
    MAX_BATCH,
    MAX_COUNT,
    MAX_HANDLER_MS,
    MAX_LEASE_MS,
    MAX_PRIORITY,
    MAX_RESULT_BYTES,
    MIN_LEASE_MS,
)

EXAMPLE_ID = "0199a3c2-7c1e-7c62-9d0b-1f1f3f1b2a77"
EXAMPLE_LEASE = "0199a3c2-7d55-7001-8a3c-6f0e9c1d2b34"

Id = Annotated[str, Field(examples=[EXAMPLE_ID])]


class ResumedCallBody(Schema):
    """A call of unknown outcome. The server looks for its outcome first, so that its message enters once."""

    slot: str = Field(
        min_length=1,
        max_length=MAX_SLOT_BYTES,
        description="The slot as its token names it; each token has slots of its own.",
        examples=[f"{EXAMPLE_ID}/1"],
    )
    number: int = Field(ge=1, le=MAX_COUNT)
    place: int = Field(ge=0, lt=MAX_BATCH, description="Where the message stood in the call.")
    message_id: Id


class PushItemBody(Schema):
    """One message. Exactly one of `payload` (any JSON value, kept byte for byte) and `payload_base64`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"oneOf": [{"required": ["payload"]}, {"required": ["payload_base64"]}]},
    )

    queue: Name = Field(examples=["orders"])
    payload: Any = Field(default=None, examples=[{"order": 42}])
    payload_base64: str | None = None
    key: Name | None = Field(default=None, description="Ordering key; `partition` is another word for it.")
    partition: Name | None = None
    priority: int | None = Field(default=None, ge=0, le=MAX_PRIORITY)
    deliver_at_ms: int | None = Field(default=None, ge=0)
    delay_ms: int | None = Field(default=None, ge=0)
    ttl_ms: int | None = Field(default=None, ge=1)
    idempotency_key: Name | None = None
    idempotency_window_ms: int | None = Field(
        default=None,
        ge=1,
        description="How long the key is remembered, if that is shorter than the queue's window.",
    )
    headers: dict[str, str] | None = None
    call: ResumedCallBody | None = Field(
        default=None, description="The call of a client in direct mode that got no answer from Redis."
    )


class NamedCallBody(Schema):
    """A name for the whole request. Sent again under the same name, the request has no second effect.

    A name stands for the bytes of its request: another request under it is 422 `key_reused`. A request that
    comes after a later one of its slot is 409 `call_stale`. Both change nothing; take the next number.
    """

    slot: str = Field(
        min_length=1,
        max_length=MAX_SLOT_BYTES,
        description="Each token has slots of its own.",
        examples=[f"{EXAMPLE_ID}/1"],
    )
    number: int = Field(ge=1, le=MAX_COUNT, description="The number of the request in its slot; it grows.")
    first_id: Id = Field(description="The id of the first message; the others follow it.")


class PushBody(Schema):
    items: list[PushItemBody] = Field(min_length=1, max_length=MAX_BATCH)
    call: NamedCallBody | None = Field(
        default=None, description="Replaces an idempotency key per item, if all items are for one queue."
    )


class PushAnswerBody(BaseModel):
    """What became of one item."""

    status: Literal["accepted", "duplicate", "queued", "refused"]
    id: str | None = Field(
        default=None,
        description="The message's id. If it is queued with an idempotency key, its operation tells the id.",
        examples=[EXAMPLE_ID],
    )
    operation_id: str | None = None
    position: int | None = None
    estimated_wait_ms: int | None = None
    reason: str | None = None
    problem: Problem | None = None


class PushAnswers(BaseModel):
    items: list[PushAnswerBody]


class PopBody(Schema):
    """Which messages to hand out; without a queue, from any queue of the environment."""

    queue: Name | None = Field(default=None, examples=["orders"])
    limit: int | None = Field(default=None, ge=1, le=MAX_BATCH, examples=[10])
    wait_ms: int | None = Field(default=None, ge=0, description="Wait that long for the first one.")
    lease_ms: int | None = Field(default=None, ge=MIN_LEASE_MS, le=MAX_LEASE_MS)
    consumer: Name | None = None
    payload_encoding: PayloadEncoding | None = Field(
        default=None, description="`base64` gives every payload as `payload_base64`, JSON too."
    )


class MessageBody(BaseModel):
    """A message under a lease; a payload that is not JSON comes as `payload_base64`."""

    id: Id
    queue: str
    lease: str = Field(examples=[EXAMPLE_LEASE])
    payload: Any = None
    payload_base64: str | None = None
    headers: dict[str, str]
    key: str | None
    priority: int
    attempt: int = Field(ge=1)
    enqueued_at_ms: int
    available_at_ms: int
    lease_until_ms: int
    wait_ms: int
    idempotency_key: str | None
    last_error: str | None


class Messages(BaseModel):
    messages: list[MessageBody]


class LeaseBody(Schema):
    queue: Name = Field(examples=["orders"])
    id: Id
    lease: Name = Field(examples=[EXAMPLE_LEASE])


HandlerTime = Annotated[
    int | None,
    Field(
        ge=0,
        le=MAX_HANDLER_MS,
        description="How long the handler ran; the life of the message keeps it.",
        examples=[42],
    ),
]


class AckBody(LeaseBody):
    """A message that is done; with `status: failed`, a message that failed."""

    handler_ms: HandlerTime = None
    status: Literal["completed", "failed"] | None = None
    error: str | None = None
    result: Any = Field(
        default=None,
        description=f"Kept for a day, as part of the outcome; at most {MAX_RESULT_BYTES} bytes of JSON.",
        examples=[{"sent": 3}],
    )


class AckBatchBody(Schema):
    acknowledgments: list[AckBody] = Field(min_length=1, max_length=MAX_BATCH)


class NackBody(LeaseBody):
    """A message that failed: tried again, or given up with `dead_letter`."""

    handler_ms: HandlerTime = None
    error: str | None = Field(default=None, examples=["timeout while calling the bank"])
    delay_ms: int | None = Field(default=None, ge=0)
    dead_letter: bool | None = None
    uncounted: bool | None = Field(
        default=None, description="It was not tried at all, so it does not die of this attempt."
    )


class ProgressBody(LeaseBody):
    """How far a handler is."""

    progress: Any = Field(
        description=f"At most {MAX_RESULT_BYTES} bytes of JSON; not null.", examples=[{"done": 3, "of": 10}]
    )


class ProgressKept(BaseModel):
    id: Id
    status: Literal["kept"]


class OutcomeBody(BaseModel):
    """How a message ended, or where it is."""

    message_id: Id
    status: Literal["queued", "waiting", "running", "done", "dead", "cancelled", "gone"] = Field(
        description="gone: it ended or never existed, and nothing is recorded. A message that was acked "
        "without a result is gone, unless a worker recorded its attempt."
    )
    result: Any = Field(description="Given with the ack, and kept for a day; null if there is none.")
    progress: Any = Field(description="The last progress that its handler reported; null if there is none.")
    error: str | None = Field(description="Why it died.")


class ExtendBody(LeaseBody):
    lease_ms: int = Field(ge=MIN_LEASE_MS, le=MAX_LEASE_MS, examples=[30_000])


class RevokedBody(Schema):
    leases: list[LeaseBody] = Field(min_length=1, max_length=MAX_BATCH)


class Revoked(BaseModel):
    revoked: list[str] = Field(
        description="The ids of cancelled messages. Each is listed until its lease would have ended.",
        examples=[[EXAMPLE_ID]],
    )


class SettleAnswerBody(BaseModel):
    """What became of the message of one lease."""

    id: Id
    status: Literal["acked", "nacked", "dead", "lapsed", "queued", "refused"]
    operation_id: str | None = None
    position: int | None = None
    estimated_wait_ms: int | None = None
    reason: str | None = None
    lease_kept_ms: int | None = Field(
        default=None,
        description=(
            "If it is queued: for how long its lease cannot lapse, should Redis stay away; "
            "0 promises nothing."
        ),
    )
    problem: Problem | None = None


class SettleAnswers(BaseModel):
    items: list[SettleAnswerBody]


class Extended(BaseModel):
    id: Id
    status: Literal["extended"]
    lease_until_ms: int


class HookAnswer(BaseModel):
    """A webhook was taken: into its queue (202), or run at once (200)."""

    status: Literal["accepted", "processed"]
    id: str | None = Field(default=None, description="The message's id.", examples=[EXAMPLE_ID])
    queued: bool = False
    idempotency_key: str | None = Field(default=None, description="The sender's id of this delivery.")
    items: list[dict[str, str]] | None = Field(default=None, description="One for each event of a batch.")
    result: Any = None
