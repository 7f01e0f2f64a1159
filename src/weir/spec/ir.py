"""Apps and queues as data: the contract between the spec language, the broker and the control plane.

Spec text, JSON and YAML become these values, and every other package works only on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from weir.model.durations import DAY_MS, MINUTE_MS
from weir.model.message import DEFAULT_PRIORITY

# The default limit of the API for every other request.
MAX_WEBHOOK_BODY_BYTES = 1024 * 1024
"""The most that the body of a webhook may have, and its limit unless the spec names a lower one."""
DEFAULT_ALERT_WINDOW_MS = 5 * MINUTE_MS
DEFAULT_ALERT_COOLDOWN_MS = 15 * MINUTE_MS
"""The window and the cooldown of an alert rule that names none."""


class Ordering(StrEnum):
    UNORDERED = "unordered"
    FIFO = "fifo"
    PER_KEY = "per_key"


class TraceMode(StrEnum):
    """Whether the work on a message belongs to the trace that the message was made in."""

    LINK = "link"
    """In a trace of its own, with a link: a trace stays short however many messages it makes."""
    CHILD = "child"
    """In the same trace."""


DEFAULT_MAX_AGE_MS = 14 * DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    max_age_ms: int | None = None
    """None if the spec has none. For a dead letter queue it also limits how long its dead letters are kept. A
    default must not delete dead letters, so the default is not stored here."""
    max_depth: int | None = None
    """With this many waiting messages the queue refuses new ones. It never deletes messages to make room."""

    @property
    def message_age_ms(self) -> int:
        """A message that waited longer expires: it goes to the dead letters and is counted."""
        return DEFAULT_MAX_AGE_MS if self.max_age_ms is None else self.max_age_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    max_attempts: int = 5
    initial_backoff_ms: int = 1_000
    max_backoff_ms: int = 60_000
    jitter: float = 0.0
    """0 to 1: the share of each delay that is random."""
    lease_ms: int = 30_000
    handler_timeout_ms: int | None = None
    dead_letter_queue: str | None = None
    """The queue that the dead letters belong to. Its `max_age` limits how long they are kept. If it has an
    action or is popped, it receives a copy of each death."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageField:
    """A typed field of a message. The type is spelled as in the language, such as `map<string, string>`."""

    name: str
    type: str
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueTo:
    """Put the message into another queue, transformed by `inputs` if there are any: a chain."""

    queue: str
    inputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapToCommand:
    """Run a registered command; `inputs` are CEL expressions over the message's fields."""

    entity: str
    command: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    then: EnqueueTo | None = None
    """Where the message goes once the command is done; its inputs may also use the command's `result`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverTo:
    """Push each message to an HTTP endpoint, signed in the Standard Webhooks way."""

    url: str
    secrets: tuple[str, ...] = ()
    """Names of secrets of the environment; each delivery carries a signature of every one."""
    timeout_ms: int = 15_000


Action = MapToCommand | DeliverTo | EnqueueTo
RESULT = "result"
"""The name of a command's return value in the inputs of the `enqueue` that follows it."""


def chain_of(action: Action | None) -> EnqueueTo | None:
    """The `enqueue` of an action, which runs at once or after a command; None if it has none."""
    if isinstance(action, MapToCommand):
        return action.then
    return action if isinstance(action, EnqueueTo) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A queue: its promises, which the broker keeps, and its action, which workers run."""

    name: str
    ordering: Ordering = Ordering.UNORDERED
    retention: Retention = field(default_factory=Retention)
    delivery: DeliveryPolicy = field(default_factory=DeliveryPolicy)
    concurrency: int | None = None
    """How many messages may be leased at once; None sets no limit for this queue."""
    priority: int = DEFAULT_PRIORITY
    """The priority of messages without one, from 0 to 9; 9 is served first."""
    message_ttl_ms: int | None = None
    idempotency_window_ms: int = DAY_MS
    trace: TraceMode = TraceMode.LINK
    history: int = 1
    """One in this many lives of messages is kept: 1 keeps all, 0 keeps none."""
    log_ms: int | None = None
    """How long the queue's log keeps each message after its end, with its payload; None keeps no log."""
    message_type: tuple[MessageField, ...] = ()
    action: Action | None = None


class SignatureScheme(StrEnum):
    HMAC = "hmac"
    STANDARD = "standard"
    GITHUB = "github"
    STRIPE = "stripe"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"
    GENERIC = "generic"


SCHEME_OPTIONS: Mapping[SignatureScheme, frozenset[str]] = {
    SignatureScheme.HMAC: frozenset({"header", "algorithm"}),
    SignatureScheme.STANDARD: frozenset({"tolerance"}),
    SignatureScheme.GITHUB: frozenset(),
    SignatureScheme.STRIPE: frozenset({"tolerance"}),
    SignatureScheme.SLACK: frozenset({"tolerance"}),
    SignatureScheme.PAGERDUTY: frozenset(),
    SignatureScheme.GENERIC: frozenset(
        {"header", "algorithm", "prefix", "encoding", "timestamp_header", "tolerance"}
    ),
}
"""The options that each scheme reads beside its secret. A spec that gives another one is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    scheme: SignatureScheme
    secrets: tuple[str, ...]
    """Names of secrets of the environment; each of them verifies."""
    header: str | None = None
    prefix: str = ""
    algorithm: str = "sha256"
    encoding: str = "hex"
    timestamp_header: str | None = None
    tolerance_s: int = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSpec:
    name: str
    queue: str | None = None
    """None: the webhook runs `action` before it answers."""
    verification: Verification | None = None
    action: MapToCommand | None = None
    idempotency_header: str | None = None
    """The header with the sender's id, if the scheme does not define one."""
    key: str | None = None
    """A CEL expression over the received message that gives the key for a `per_key` queue."""
    max_body_bytes: int = MAX_WEBHOOK_BODY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """One consumer of a channel, with a queue and dead letters of its own."""

    id: str
    name: str
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSpec:
    """A channel: each published message goes into the queue of every consumer."""

    id: str
    name: str
    consumers: tuple[ConsumerSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSpec:
    """An alert rule of a spec. `weir.alerts` checks and evaluates it."""

    name: str
    metric: str
    operator: str
    threshold: float
    queue: str | None = None
    window_ms: int = DEFAULT_ALERT_WINDOW_MS
    cooldown_ms: int = DEFAULT_ALERT_COOLDOWN_MS
    auto_resolve: bool = True
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a schedule ticks: `cron` in a time zone, or every so often. `spec.timing` computes the ticks."""

    cron: str | None = None
    every_ms: int | None = None
    timezone: str = "UTC"
    """The time zone of `cron`; an interval needs none."""


class MissedTicks(StrEnum):
    """What becomes of ticks that were missed while nothing ran."""

    SKIP = "skip"
    LAST = "last"
    """The last of them goes out, unless a later tick is in time."""
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a tick while the message of the tick before is not done."""

    ALLOW = "allow"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """A schedule: each tick pushes the payload into a queue. `weir.schedules` keeps and runs it."""

    name: str
    queue: str
    timing: Timing
    payload: Any = field(default_factory=dict)
    """A JSON value."""
    missed: MissedTicks = MissedTicks.SKIP
    overlap: Overlap = Overlap.ALLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSpec:
    """An app: everything that is applied to one environment together."""

    name: str
    queues: tuple[QueueSpec, ...] = ()
    webhooks: tuple[WebhookSpec, ...] = ()
    channels: tuple[ChannelSpec, ...] = ()
    alerts: tuple[AlertSpec, ...] = ()
    schedules: tuple[ScheduleSpec, ...] = ()
    concurrency: int | None = None
    """How many messages of the whole environment may be leased at once."""


PART_KINDS: Mapping[str, str] = {
    "queues": "queue",
    "webhooks": "webhook",
    "channels": "channel",
    "alerts": "alert",
    "schedules": "schedule",
}
"""The kinds of parts of an app, by the plural that holds them."""
