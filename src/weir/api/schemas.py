"""The shapes of the control plane's requests and answers, as they stand in the OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from weir.control.principals import Role
from weir.model.durations import DAY_MS
from weir.model.limits import MAX_COUNT, MAX_DELAY_MS, MAX_LEASE_MS, MAX_PRIORITY, MAX_SPAN_MS
from weir.model.message import DEFAULT_PRIORITY
from weir.spec.ir import Ordering


class Schema(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Problem(BaseModel):
    """An RFC 9457 problem. `code` is stable; clients ignore members that they do not know."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:weir:problem:not_found"])
    title: str = Field(examples=["Not found"])
    status: int = Field(ge=400, le=599, examples=[404])
    detail: str = Field(examples=["there is no queue `orders`; define it first"])
    code: str = Field(examples=["not_found"])
    retryable: bool
    instance: str | None = Field(default=None, examples=["urn:uuid:0199a3c2-0000-7000-8000-000000000000"])
    retry_after: int | None = Field(default=None, ge=1)
    errors: list[dict[str, Any]] | None = None


Name = Annotated[StrictStr, Field(min_length=1, max_length=255)]
Count = Annotated[StrictInt, Field(ge=1, le=MAX_COUNT)]
Span = Annotated[StrictInt, Field(ge=1, le=MAX_SPAN_MS)]
Delay = Annotated[StrictInt, Field(ge=0, le=MAX_DELAY_MS)]


class RetentionBody(Schema):
    max_age_ms: Span | None = Field(
        default=None,
        description="Messages that waited longer expire; null: 14 days. For a dead letter queue it also says "
        "how long dead letters are kept; null: for ever.",
    )
    max_depth: Count | None = None


class DeliveryBody(Schema):
    max_attempts: Count = 5
    initial_backoff_ms: Delay = 1_000
    max_backoff_ms: Delay = 60_000
    jitter: Annotated[StrictFloat | StrictInt, Field(ge=0, le=1)] = 0.0
    lease_ms: Annotated[StrictInt, Field(ge=1, le=MAX_LEASE_MS)] = 30_000
    handler_timeout_ms: Span | None = Field(
        default=None, description="Of one attempt of a worker; null: none."
    )
    dead_letter_queue: Name | None = Field(
        default=None,
        description="The queue that the dead letters belong to. It says how long they are kept and, if it "
        "has work to do or is popped, receives each death as a message.",
        examples=["orders-dead"],
    )


class QueueBody(Schema):
    """What a queue promises; what is left out has the default."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [{"ordering": "per_key", "concurrency": 8, "delivery": {"max_attempts": 3}}]
        },
    )

    ordering: Ordering = Ordering.UNORDERED
    concurrency: Count | None = None
    priority: Annotated[StrictInt, Field(ge=0, le=MAX_PRIORITY)] = Field(
        default=DEFAULT_PRIORITY,
        # Its name until it did something.
        validation_alias=AliasChoices("priority", "default_priority"),
        description="Of messages that come without one; 9 is served first.",
    )
    message_ttl_ms: Span | None = None
    idempotency_window_ms: Annotated[StrictInt, Field(ge=0, le=MAX_SPAN_MS)] = DAY_MS
    retention: RetentionBody = RetentionBody()
    delivery: DeliveryBody = DeliveryBody()


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


class QueueDetail(QueueView):
    """A queue right now, with what it promises; null where the control store does not know it."""

    definition: QueueBody | None
    defined_at_ms: int | None


class QueueList(BaseModel):
    items: list[QueueView]


class EnvironmentBody(Schema):
    concurrency: Count | None = Field(default=None, examples=[100])


class EnvironmentView(BaseModel):
    organization: str
    project: str
    environment: str
    concurrency: int | None
    created_at_ms: int


class EnvironmentList(BaseModel):
    items: list[EnvironmentView]


class TokenBody(Schema):
    """A token to create. What the creating token fixes of the scope may be left out."""

    name: Name = Field(examples=["checkout service"])
    role: Role = Field(examples=["write"])
    organization: Name | None = Field(
        default=None, description="Chosen by an operator; others have their own."
    )
    project: Name | None = None
    environment: Name | None = None
    lifetime_ms: Annotated[StrictInt, Field(ge=1, le=MAX_SPAN_MS)] | None = None


class RotateBody(Schema):
    grace_ms: Annotated[StrictInt, Field(ge=0, le=30 * DAY_MS)] = Field(
        default=0, description="How long the old token holds on.", examples=[3_600_000]
    )


class TokenView(BaseModel):
    id: str
    name: str
    role: Role
    organization: str | None = Field(description="null for an operator.")
    project: str | None
    environment: str | None
    created_at_ms: int
    expires_at_ms: int | None
    revoked_at_ms: int | None
    last_used_at_ms: int | None
    replaces: str | None


class TokenCreated(TokenView):
    token: str = Field(description="The whole token; it is shown this once.")


class TokenList(BaseModel):
    items: list[TokenView]


class AuditEntry(BaseModel):
    id: str
    organization: str | None
    project: str | None
    environment: str | None
    actor: str
    action: str
    target: str
    details: dict[str, Any]
    at_ms: int


class AuditList(BaseModel):
    items: list[AuditEntry]


class Alive(BaseModel):
    status: str = Field(examples=["alive"])


class Readiness(BaseModel):
    ready: bool
    checks: dict[str, str] = Field(description="`ok`, or what is wrong, by name.")


class Confirmation(BaseModel):
    """A change that took effect."""

    status: StrictStr
    paused: StrictBool | None = None
