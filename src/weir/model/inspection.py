"""The types for showing and touching messages that wait or are leased."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from weir.errors import InvalidInput
from weir.model.ids import MessageId
from weir.model.message import check_number
from weir.model.names import QueueRef, check_name

MAX_PAGE = 200
"""Messages in one page."""
PREVIEW_BYTES = 200
"""How much of a payload or error a page shows."""
MAX_SEARCH_BYTES = 1_000
"""The longest text that can be searched for."""


class MessageState(StrEnum):
    """Where a message is between enqueue and its end."""

    READY = "ready"
    """It may be handed out. In an ordered queue only the head of each key is ready."""
    SCHEDULED = "scheduled"
    """It waits for its time, and was never handed out."""
    RETRYING = "retrying"
    """It was handed out before, and waits for its next attempt."""
    BLOCKED = "blocked"
    """It waits behind the head of its key."""
    LEASED = "leased"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Which messages to show: every given condition must match."""

    key: str | None = None
    header: tuple[str, str] | None = None
    """A name and its value."""
    text: bytes | None = None
    """Bytes that the payload holds somewhere."""


EVERY_MESSAGE = MessageFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLease:
    """Who holds a message, and until when. The token of the lease is never shown."""

    consumer: str
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedMessage:
    """One message of a page."""

    message_id: MessageId
    state: MessageState
    key: str | None
    headers: Mapping[str, str]
    priority: int
    attempts: int
    """How often it was handed out."""
    enqueued_at_ms: int
    available_at_ms: int
    """When it became or will become available."""
    expires_at_ms: int
    preview: bytes
    """The first `PREVIEW_BYTES` of its payload."""
    payload_bytes: int
    last_error: str | None
    """The first `PREVIEW_BYTES` of its last error."""
    held: MessageLease | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Messages of one state. A page may hold fewer than asked for, or none, before the end."""

    messages: tuple[ListedMessage, ...]
    cursor: str | None
    """None at the end."""
    scanned: int
    """How many messages were looked at for this page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDetail:
    """All that is known of a message that waits or is leased."""

    queue: QueueRef
    message_id: MessageId
    state: MessageState
    payload: bytes
    headers: Mapping[str, str]
    key: str | None
    idempotency_key: str | None
    priority: int
    attempts: int
    enqueued_at_ms: int
    available_at_ms: int
    expires_at_ms: int
    last_error: str | None
    held: MessageLease | None
    ahead: int | None
    """How many messages are before it: ready messages if it is ready, messages of its key if it is blocked,
    scheduled and retrying messages if it is one of these. None if it is leased."""
    behind_id: MessageId | None
    """The head of its key, if it is blocked. None also if an older program made it the head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCounts:
    """How many messages of a queue are in each state."""

    ready: int
    scheduled: int | None
    """None if unknown: an older program left more than 10,000 delayed messages, and some of them remain."""
    retrying: int | None
    delayed: int
    """Scheduled and retrying together."""
    blocked: int
    leased: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitParts:
    """How long each reason kept a message waiting since the broker accepted it, without its leased time.

    At each instant the first reason that holds counts, in this order, so the parts add up to the wait.
    """

    scheduled_ms: int = 0
    """For its time, before it was first available."""
    backoff_ms: int = 0
    """For its next attempt."""
    blocked_ms: int = 0
    """Behind the head of its key."""
    paused_ms: int = 0
    queue_limit_ms: int = 0
    environment_limit_ms: int = 0
    unasked_ms: int = 0
    """Nobody asked its queue or its environment for messages during the last second."""
    turn_ms: int = 0
    """In turn behind others."""
    unknown_ms: int = 0
    """It was put in by an older program, or its queue changed too often before its place was noted."""

    @property
    def total_ms(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a message waited: until now, or until it was handed out if it is leased."""

    state: MessageState
    enqueued_at_ms: int
    until_ms: int
    leased_ms: int
    """For how long it was leased before that, in earlier attempts."""
    parts: WaitParts
    behind_id: MessageId | None
    """The head of its key, if it is blocked and the head is known."""


class Touched(StrEnum):
    """What became of one message that somebody wanted to move or cancel."""

    DONE = "done"
    REVOKED = "revoked"
    """Cancelled while it was leased: the lease is revoked, and its holder is told."""
    GONE = "gone"
    """It neither waits nor is leased here."""
    LEASED = "leased"
    """It is leased, so it was not moved."""
    BLOCKED = "blocked"
    """It waits behind the head of its key; moving it would break the order."""
    ORDERED = "ordered"
    """Its queue is ordered, and serves by order, not by priority."""


def check_filter(match: MessageFilter) -> None:
    if match.key is not None:
        check_name(match.key, what="message key")
    if match.header is not None and not all(isinstance(part, str) for part in match.header):
        raise InvalidInput("a header to search for is not text; give its name and value as text")
    if match.text is not None:
        check_number(
            len(match.text), what="the length of the text to search for", least=1, most=MAX_SEARCH_BYTES
        )


def check_page(limit: int) -> None:
    check_number(limit, what="limit", least=1, most=MAX_PAGE)
