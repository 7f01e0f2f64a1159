"""Turns replies of the scripts that look at messages into pages, details and outcomes; cursors of pages."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import orjson

from weir.broker import layout
from weir.errors import InvalidInput
from weir.model.ids import MessageId
from weir.model.inspection import (
    PREVIEW_BYTES,
    ListedMessage,
    MessageCounts,
    MessageDetail,
    MessageFilter,
    MessageLease,
    MessagePage,
    MessageState,
    Touched,
    WaitParts,
    Why,
)
from weir.model.names import QueueRef

UNINDEXED = "u"
"""The letter for a message that an older program put in, and that is not indexed yet."""
_TOUCHED = {
    "d": Touched.DONE,
    "r": Touched.REVOKED,
    "g": Touched.GONE,
    "l": Touched.LEASED,
    "b": Touched.BLOCKED,
    "o": Touched.ORDERED,
}


def touched(letters: Mapping[int, str]) -> dict[int, Touched]:
    """What became of the messages at these places, without messages that are not indexed yet."""
    return {place: _TOUCHED[letter] for place, letter in letters.items() if letter != UNINDEXED}


def filter_arguments(match: MessageFilter) -> tuple[bytes, bytes, bytes]:
    """Key, headers and payload to match, as the script compares them; empty for any."""
    header = b""
    if match.header is not None:
        name, value = match.header
        header = orjson.dumps(name) + b":" + orjson.dumps(value)
    return (match.key or "").encode(), header, match.text or b""


def cursor_bytes(cursor: str | None, state: MessageState) -> bytes:
    """A cursor as the script takes it; refuses text that is not a cursor of this state."""
    if cursor is None:
        return b""
    try:
        data = urlsafe_b64decode(cursor.encode("ascii"))
    except (binascii.Error, ValueError):
        data = b""
    if not _is_cursor(data, state):
        raise InvalidInput(f"`{cursor:.40}` is not a cursor of {state} messages; begin without one")
    return data


def _is_cursor(data: bytes, state: MessageState) -> bool:
    if state is MessageState.LEASED:
        return len(data) == 16
    if state is MessageState.BLOCKED:
        return len(data) >= 2 + int.from_bytes(data[:2], "big") + layout.MEMBER.size
    score, _, member = data.partition(b" ")
    try:
        return isfinite(float(score)) and len(member) >= layout.MEMBER.size
    except ValueError:
        return False


def page(reply: Sequence[Any], state: MessageState, match: MessageFilter) -> MessagePage:
    found = [_listed(reply[at : at + 5], state) for at in range(3, len(reply), 5)]
    if match.header is not None:
        # The script searches for text, so it also finds a longer name with the same end.
        name, value = match.header
        found = [one for one in found if one.headers.get(name) == value]
    cursor = cursor_text(reply[1]) if reply[1] else None
    return MessagePage(messages=tuple(found), cursor=cursor, scanned=reply[2])


def cursor_text(place: bytes) -> str:
    """A cursor as callers keep it."""
    return urlsafe_b64encode(place).decode()


def _listed(row: Sequence[Any], state: MessageState) -> ListedMessage:
    member, lease, front, size, error = row
    _, raw_id, attempts, enqueued, available, expires, priority = layout.MEMBER.unpack_from(member)
    key, _, headers, preview = layout.unpack_front(front)
    return ListedMessage(
        message_id=MessageId(layout.id_text(raw_id)),
        state=state,
        key=key,
        headers=headers,
        priority=priority,
        attempts=attempts,
        enqueued_at_ms=enqueued,
        available_at_ms=available,
        expires_at_ms=expires,
        preview=preview[:PREVIEW_BYTES],
        payload_bytes=size,
        last_error=error.decode(errors="ignore") or None,
        held=_held(lease),
    )


def _held(lease: bytes) -> MessageLease | None:
    if not lease:
        return None
    return MessageLease(consumer=lease[8:].decode(), until_ms=int.from_bytes(lease[:8], "big"))


def detail(reply: Sequence[Any], queue: QueueRef) -> MessageDetail:
    state, member, lease, body, error, ahead, behind = reply[1:]
    _, raw_id, attempts, enqueued, available, expires, priority = layout.MEMBER.unpack_from(member)
    key, idempotency_key, headers, payload = layout.unpack_body(body, 0)
    return MessageDetail(
        queue=queue,
        message_id=MessageId(layout.id_text(raw_id)),
        state=MessageState(state.decode()),
        payload=payload,
        headers=headers,
        key=key,
        idempotency_key=idempotency_key,
        priority=priority,
        attempts=attempts,
        enqueued_at_ms=enqueued,
        available_at_ms=available,
        expires_at_ms=expires,
        last_error=error.decode() or None,
        held=_held(lease),
        ahead=None if ahead < 0 else ahead,
        behind_id=MessageId(layout.id_text(behind)) if behind else None,
    )


def counts(reply: Sequence[Any]) -> MessageCounts:
    _, ready, delayed, leased, retrying, blocked = reply
    known = retrying >= 0
    return MessageCounts(
        ready=ready,
        scheduled=delayed - retrying if known else None,
        retrying=retrying if known else None,
        delayed=delayed,
        blocked=blocked,
        leased=leased,
    )


def why(reply: Sequence[Any]) -> Why:
    state, enqueued, until, scheduled, backoff, blocked, paused, limited = reply[1:9]
    environment_limited, unasked, unknown, leased, behind = reply[9:]
    known = scheduled + backoff + blocked + paused + limited + environment_limited + unasked + unknown
    return Why(
        state=MessageState(state.decode()),
        enqueued_at_ms=enqueued,
        until_ms=until,
        leased_ms=leased,
        parts=WaitParts(
            scheduled_ms=scheduled,
            backoff_ms=backoff,
            blocked_ms=blocked,
            paused_ms=paused,
            queue_limit_ms=limited,
            environment_limit_ms=environment_limited,
            unasked_ms=unasked,
            turn_ms=max(0, until - enqueued - leased - known),
            unknown_ms=unknown,
        ),
        behind_id=MessageId(layout.id_text(behind)) if behind else None,
    )
