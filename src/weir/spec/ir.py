"""What a queue is, as data: the contract between the spec language, the broker and the control plane.

Loaded from spec text, JSON or YAML; everything behind this module works on these values alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from weir.model.durations import DAY_MS
from weir.model.message import DEFAULT_PRIORITY


class Ordering(StrEnum):
    UNORDERED = "unordered"
    FIFO = "fifo"
    PER_KEY = "per_key"


DEFAULT_MAX_AGE_MS = 14 * DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    max_age_ms: int | None = None
    """As written; None if nothing is. Written for a dead letter queue, it also says how long the dead letters
    that belong to it are kept. A default must not delete anything, so it is not written down."""
    max_depth: int | None = None
    """At this many waiting messages the queue refuses new ones; nothing is trimmed."""

    @property
    def message_age_ms(self) -> int:
        """A message that waited longer is expired: it goes to the dead letters and is counted."""
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
    """The queue that the dead letters belong to. It says how long they are kept and, if it has work to do or
    is popped, receives each death as a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageField:
    """A typed field of a message; types are as the language spells them, `map<string, string>` included."""

    name: str
    type: str
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MapToCommand:
    """Run a registered command; `inputs` are CEL expressions over the message's fields."""

    entity: str
    command: str
    inputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverTo:
    """Push each message to an HTTP endpoint, signed in the Standard Webhooks way."""

    url: str
    secret_env: str | None = None
    timeout_ms: int = 15_000
    previous_secret_envs: tuple[str, ...] = ()
    """Secrets that are being rotated out: each delivery carries their signatures too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueTo:
    """Chain: put the message, transformed by `inputs` if any, into another queue."""

    queue: str
    inputs: Mapping[str, str] = field(default_factory=dict)


Action = MapToCommand | DeliverTo | EnqueueTo


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """Everything that the broker needs to keep a queue's promises, and what workers do with it."""

    name: str
    ordering: Ordering = Ordering.UNORDERED
    retention: Retention = field(default_factory=Retention)
    delivery: DeliveryPolicy = field(default_factory=DeliveryPolicy)
    concurrency: int | None = None
    """How many messages may be leased at once; None is no limit of its own."""
    priority: int = DEFAULT_PRIORITY
    """Of messages that come without one: 0 to 9, and 9 is served first."""
    message_ttl_ms: int | None = None
    idempotency_window_ms: int = DAY_MS
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    scheme: SignatureScheme
    secret_envs: tuple[str, ...]
    """Environment variables that hold the secrets: the current one first, then those being rotated out."""
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
    """None: the synchronous fallback, which runs `action` before it answers."""
    verification: Verification | None = None
    action: MapToCommand | None = None
    idempotency_header: str | None = None
    """Where the sender's id stands, if the scheme does not say."""
    key: str | None = None
    """CEL over the received message: the ordering key in a `per_key` queue."""
    max_body_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """One consumer of a channel: it has a queue of its own, and its own dead letters."""

    id: str
    name: str
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSpec:
    """A channel fans each published message out to every consumer's queue."""

    id: str
    name: str
    consumers: tuple[ConsumerSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSpec:
    """An alert rule as written in a spec; `alerts` gives it its meaning."""

    name: str
    metric: str
    operator: str
    threshold: float
    queue: str | None = None
    window_ms: int = 300_000
    cooldown_ms: int = 900_000
    auto_resolve: bool = True
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSpec:
    """One app: everything that is applied to one environment at once."""

    name: str
    queues: tuple[QueueSpec, ...] = ()
    webhooks: tuple[WebhookSpec, ...] = ()
    channels: tuple[ChannelSpec, ...] = ()
    alerts: tuple[AlertSpec, ...] = ()
    concurrency: int | None = None
    """Limit of the whole environment."""
