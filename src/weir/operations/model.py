"""The types of the operation queue: an operation, its place in the order, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from weir.admission.kinds import PRIORITIES, OperationType
from weir.errors import QueueFull
from weir.model.ids import MessageId, OperationId, new_operation_id
from weir.model.names import QueueRef
from weir.model.shards import text_key

ALLOWANCE_MS = 2_000
"""For how long a keeper allows direct writes; it has to renew this in time."""
PACE_S = 0.02
"""Pause of the processor between two small rounds under pressure. A round costs about the same for one
operation as for fifty, so waiting makes the rounds fuller and leaves more time for requests that are executed
directly."""
DEFAULT_TIMEOUT_MS = 30_000
LONGEST_WAIT_MS = DEFAULT_TIMEOUT_MS
"""No claim or pause lasts longer. A moment that is further ahead was set before the clock stepped back."""
DEFAULT_MAX_RETRIES = 3
MAX_ROUND_BYTES = 8 * 1024 * 1024
"""A round of the processor begins no further operation once it has so many bytes of payloads."""
SUSPECT_TRIES = 2
"""After so many claims that ended without a word, an operation is claimed alone."""
MAX_TRIES = 10
"""After so many it is given up: the process that ran it ended each time."""


class OperationStatus(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """Why an operation was queued instead of executed."""

    MAINTAINING_ORDER = "maintaining_order"
    SYSTEM_BUSY = "system_busy"
    BROKER_UNAVAILABLE = "broker_unavailable"


def queue_full(queue: QueueRef) -> QueueFull:
    """The refusal of a message that its queue has no room for."""
    return QueueFull(f"the queue `{queue.queue}` is full; try again", retry_after_s=1)


def partition_of(queue: QueueRef, key: str | None) -> int:
    """The partition as a signed 64-bit number. Its operations run one at a time."""
    return _signed(text_key(*queue.names) if key is None else text_key(*queue.names, key))


def partition_alone(operation: OperationId) -> int:
    """A partition of its own, for an operation that needs no order."""
    return _signed(text_key("operation", operation))


def _signed(key: int) -> int:
    return key - (1 << 64) if key >= 1 << 63 else key


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOperation:
    """An operation on its way into the queue."""

    queue: QueueRef
    key: str | None
    type: OperationType
    partition: int
    shard: int
    payload: bytes
    messages: int
    gated: bool = True
    """False when the gate of its partition could not be closed: the broker is out of reach."""
    call_slot: str | None = None
    """Slot of the direct call that it repeats, if the outcome of that call is unknown."""
    message_ids: tuple[MessageId, MessageId] | None = None
    """The least and the greatest id of its messages, by which it is found."""
    id: OperationId = field(default_factory=new_operation_id)
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    max_retries: int = DEFAULT_MAX_RETRIES

    @property
    def priority(self) -> int:
        return PRIORITIES[self.type]

    @property
    def must(self) -> bool:
        """Whether it is queued however full its queue is, because it may have taken effect already."""
        return self.call_slot is not None

    @property
    def ordered(self) -> bool:
        """Whether it keeps its place in a partition, behind a gate; settlements need neither."""
        return self.type is OperationType.PUSH

    @property
    def behind_gate(self) -> bool:
        """Whether the broker keeps its place, and so can make it void."""
        return self.ordered and self.gated

    def without_gate(self) -> NewOperation:
        """The same operation, whose gate could not be closed."""
        return replace(self, gated=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The answer to the caller of a queued operation: the 202."""

    operation_id: OperationId
    position: int
    """How many operations were ahead of it, itself included."""
    estimated_wait_ms: int | None
    """None if nobody knows, because nothing drains; for example while the broker is out of reach."""
    reason: Reason
    messages: int
    """How many of its messages are queued, from the first on; its queue has no room for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """An operation that this process runs now."""

    id: OperationId
    queue: QueueRef
    key: str | None
    type: str
    partition: int
    payload: bytes
    messages: int
    age_ms: int
    """How long it has waited, by PostgreSQL's clock alone."""
    retry_count: int
    max_retries: int
    tries: int
    """Claims without a word about its end, this one included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledOperation:
    """What became of a claimed operation. PENDING puts it back at the head of its partition."""

    id: OperationId
    partition: int
    status: OperationStatus
    counted: bool = False
    """Whether this try counts against `max_retries`; an outage does not."""
    error: str | None = None
    result: Mapping[str, Any] | None = None
    chained: tuple[tuple[str, str], ...] = ()
    """Parent and id of each message that came from another, by the id under which it is in the queue."""
    delay_ms: int = 0
