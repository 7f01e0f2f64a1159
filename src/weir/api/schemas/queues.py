"""Queues: their promises and their state."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from weir.api.problems import from_validation
from weir.api.schemas.shared import Count, Delay, Name, Revised, Schema, Span
from weir.model.durations import DAY_MS
from weir.model.limits import MAX_LEASE_MS, MAX_PRIORITY, MAX_SPAN_MS, MIN_LOG_MS
from weir.spec.history import history_text, log_needs_lives, read_history
from weir.spec.ir import DEFAULT_MAX_AGE_MS, DeliveryPolicy, Ordering, QueueSpec, TraceMode

_DELIVERY = DeliveryPolicy()
_QUEUE = QueueSpec(name="")


class RetentionBody(Schema):
    max_age_ms: Span | None = Field(
        default=None,
        description=f"Messages that waited longer expire; null: {DEFAULT_MAX_AGE_MS // DAY_MS} days. For a "
        "dead letter queue it also says how long dead letters are kept; null: for ever.",
    )
    max_depth: Count | None = None


class DeliveryBody(Schema):
    max_attempts: Count = _DELIVERY.max_attempts
    initial_backoff_ms: Delay = _DELIVERY.initial_backoff_ms
    max_backoff_ms: Delay = _DELIVERY.max_backoff_ms
    jitter: Annotated[StrictFloat | StrictInt, Field(ge=0, le=1)] = _DELIVERY.jitter
    lease_ms: Annotated[StrictInt, Field(ge=1, le=MAX_LEASE_MS)] = _DELIVERY.lease_ms
    handler_timeout_ms: Span | None = Field(
        default=None, description="For one attempt of a worker; null: no limit."
    )
    dead_letter_queue: Name | None = Field(
        default=None,
        description="The queue that the dead letters belong to. It says how long they are kept and, if it "
        "has work to do or is popped, receives each death as a message.",
        examples=["orders-dead"],
    )


def _known_history(text: str) -> str:
    if read_history(text) is None:
        raise ValueError("expected `all`, `none` or a share such as `1 in 10`")
    return text


class QueueBody(Schema):
    """The promises of a queue; a member that is left out has its default."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [{"ordering": "per_key", "concurrency": 8, "delivery": {"max_attempts": 3}}]
        },
    )

    ordering: Ordering = _QUEUE.ordering
    concurrency: Count | None = None
    priority: Annotated[StrictInt, Field(ge=0, le=MAX_PRIORITY)] = Field(
        default=_QUEUE.priority,
        # `default_priority` is its former name, from when it had no effect.
        validation_alias=AliasChoices("priority", "default_priority"),
        description=f"For messages that come without a priority; {MAX_PRIORITY} is served first.",
    )
    message_ttl_ms: Span | None = None
    idempotency_window_ms: Annotated[StrictInt, Field(ge=0, le=MAX_SPAN_MS)] = _QUEUE.idempotency_window_ms
    trace: TraceMode = Field(
        default=_QUEUE.trace,
        description="How the work on a message is joined to the trace that made it: by a `link`, or as a "
        "`child` in the same trace.",
    )
    history: Annotated[StrictStr, AfterValidator(_known_history)] = Field(
        default=history_text(_QUEUE.history),
        description="Which messages leave a life when they end: `all`, `none`, or a share such as `1 in 10`.",
        examples=["1 in 10"],
    )
    log_ms: Annotated[StrictInt, Field(ge=MIN_LOG_MS, le=MAX_SPAN_MS)] | None = Field(
        default=None,
        description="How long the queue's log keeps each message after its end, with payload, headers and "
        "life; null keeps no log. It needs `history: all`.",
        examples=[2_592_000_000],
    )
    retention: RetentionBody = RetentionBody()
    delivery: DeliveryBody = DeliveryBody()

    @model_validator(mode="after")
    def _log_keeps_lives(self) -> Self:
        history = read_history(self.history)
        if self.log_ms is not None and history is not None and history != 1:
            raise ValueError(log_needs_lives(history))
        return self


def _without_defaults(schema: dict[str, Any]) -> None:
    """Describe members of a patch: a client that filled defaults in would change what it did not name."""
    members = schema["properties"]
    parts = {"retention": RetentionBody.model_json_schema(), "delivery": DeliveryBody.model_json_schema()}
    members.update(parts)
    for one in (members, *(part["properties"] for part in parts.values())):
        for member in one.values():
            member.pop("default", None)
    schema["examples"] = [{"delivery": {"max_attempts": 3}}]


class QueuePatch(QueueBody):
    """Some promises of a queue; a member that is left out stays as it is, also inside another one."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)

    def over(self, before: QueueBody) -> QueueBody:
        """What was promised before, with the members that are given here."""
        merged = before.model_dump()
        for name, value in self.model_dump(exclude_unset=True).items():
            merged[name] = {**merged[name], **value} if isinstance(value, dict) else value
        try:
            return QueueBody.model_validate(merged)
        except ValidationError as error:
            raise from_validation([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from None


class QueueView(BaseModel):
    """A queue right now."""

    name: str = Field(examples=["orders"])
    depth: int = Field(description="Waiting messages: ready, delayed and waiting for a retry.", examples=[12])
    delayed: int
    running: int = Field(description="Leased messages.", examples=[3])
    limit: int | None = Field(description="Concurrency limit of the queue; null is none.", examples=[8])
    utilization_pct: float | None = Field(
        description="100 * running / limit; null without a limit.", examples=[37.5]
    )
    oldest_age_ms: int
    paused: bool
    environment_depth: int
    environment_running: int
    environment_limit: int | None
    totals: dict[str, int] = Field(description="Lifetime totals by counter.")


class QueueDetail(QueueView, Revised):
    """A queue right now and its promises, which are null if PostgreSQL does not know the queue."""

    changed_by: ClassVar[type[BaseModel]] = QueueBody

    definition: QueueBody | None
    defined_at_ms: int | None

    def stored(self) -> dict[str, Any]:
        return {} if self.definition is None else self.definition.model_dump(mode="json")


class QueueList(BaseModel):
    items: list[QueueView]


class Confirmation(BaseModel):
    """A change that took effect."""

    status: StrictStr
    paused: StrictBool | None = None
