"""Turns replies of scripts into results, or errors of the tree; lists every word that a script may answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from weir.broker import checks, layout
from weir.broker.broker import CallAnswer, Gated, Swept
from weir.broker.keys import queue_of
from weir.errors import Conflict, Misconfigured
from weir.model.ids import MessageId
from weir.model.message import (
    DeadMessage,
    Delivery,
    Enqueued,
    LeaseRef,
    NewMessage,
    QueueState,
    Settlement,
)
from weir.model.names import QueueRef


class Word(StrEnum):
    """The first element of every reply."""

    OK = "ok"
    UNKNOWN = "unknown"
    STALE = "stale"
    LOST = "lost"
    LATE = "late"
    OTHER = "other"
    ORDERING = "ordering"
    BUSY = "busy"
    NEWER = "newer"
    CROWDED = "crowded"
    UNUSUAL = "unusual"


_OUTCOMES = {ord(letter): outcome for outcome, letter in layout.ENQUEUE_LETTERS.items()}
_NAMES_ANOTHER = b"dk"
_SETTLEMENTS = {ord("d"): Settlement.DONE, ord("x"): Settlement.DEAD, ord("l"): Settlement.LAPSED}
_SETTLEMENTS[ord("c")] = Settlement.CANCELLED
_SETTLEMENTS |= {ord("D"): Settlement.DONE, ord("X"): Settlement.DEAD}
_unpack_handed = layout.HANDED.unpack_from
_HANDED_SIZE = layout.HANDED.size
_unpack_dead = layout.DEAD.struct.unpack_from
_DEAD_SIZE = layout.DEAD.struct.size


def check(reply: Sequence[Any], *, queue: str = "") -> Sequence[Any]:
    """The reply, if its word is `ok`; else the error that the word stands for."""
    word = reply[0].decode()
    if word == Word.OK:
        return reply
    if word == Word.UNKNOWN:
        raise checks.queue_unknown(queue)
    if word == Word.ORDERING:
        raise checks.ordering_kept(queue)
    if word == Word.BUSY:
        raise checks.queue_in_use(queue, reply[1])
    if word == Word.CROWDED:
        raise Conflict(f"{reply[1]} messages of `{queue}` are leased, too many to list; show one by its id")
    if word == Word.NEWER:
        raise Misconfigured(
            f"Redis holds `{reply[1].decode()}` of version {int(reply[2])}, which this program cannot read; "
            "start a newer Weir"
        )
    if word == Word.LATE:
        raise checks.call_stale()
    if word == Word.OTHER:
        raise checks.call_reused()
    raise checks.call_given_up()


def enqueued(messages: Sequence[NewMessage], answer: bytes) -> list[Enqueued]:
    """One answer per message; the answer for a duplicate carries the id of the first message."""
    count = len(messages)
    originals = iter(range(count, len(answer), 16))
    results = []
    for message, letter in zip(messages, answer[:count], strict=True):
        message_id = message.id
        if letter in _NAMES_ANOTHER:
            start = next(originals)
            message_id = MessageId(layout.id_text(answer[start : start + 16]))
        results.append(Enqueued(outcome=_OUTCOMES[letter], message_id=message_id))
    return results


def settlements(letters: bytes) -> list[Settlement]:
    """A capital says that the lease was settled a while ago, and that the answer is repeated."""
    return [_SETTLEMENTS[letter] for letter in letters]


def flags(reply: Sequence[Any]) -> list[bool]:
    """One yes or no per item."""
    return [letter == ord("y") for letter in reply[1]]


def call_answers(reply: Sequence[Any]) -> list[CallAnswer]:
    """What a named call did with each message; the answer for a duplicate names the first message."""
    originals = iter(range(0, len(reply[2]), 16))
    answers = []
    for letter in reply[1]:
        original_id = None
        if letter in _NAMES_ANOTHER:
            start = next(originals)
            original_id = MessageId(layout.id_text(reply[2][start : start + 16]))
        answers.append(CallAnswer(outcome=_OUTCOMES[letter], original_id=original_id))
    return answers


def headers(reply: Sequence[Any]) -> Mapping[str, str] | None:
    """The headers in the body of one message, if there is one."""
    return layout.unpack_body(reply[1], 0)[2] if reply[1] else None


def granted(reply: Sequence[Any]) -> list[int | None]:
    """How many messages may come through each gate; None for an operation that is void."""
    numbers = (int.from_bytes(reply[1][at : at + 4], "big") for at in range(0, len(reply[1]), 4))
    return [None if number == layout.VOID_GRANT else number for number in numbers]


def gates(reply: Sequence[Any]) -> list[tuple[QueueRef, Gated]]:
    """Closed gates and who holds them."""
    return [
        (queue_of(reply[at]), Gated(key=reply[at + 1].decode() or None, operation=reply[at + 2].decode()))
        for at in range(1, len(reply), 3)
    ]


def deliveries(reply: Sequence[Any], *, token: str) -> list[Delivery]:
    """The messages of a dequeue reply, queue by queue."""
    results: list[Delivery] = []
    now, at = reply[2], 4
    while at < len(reply):
        queue, count, deadline = queue_of(reply[at]), reply[at + 1], reply[at + 2]
        at += 3
        results += [_delivery(queue, packed, token, deadline, now) for packed in reply[at : at + count]]
        at += count
    return results


def _delivery(queue: QueueRef, packed: bytes, token: str, deadline: int, now: int) -> Delivery:
    _, raw_id, attempt, enqueued_at, available_at, _, priority, error_size = _unpack_handed(packed)
    body_at = _HANDED_SIZE + error_size
    key, idempotency_key, headers, payload = layout.unpack_body(packed, body_at)
    return Delivery(
        lease=LeaseRef(queue=queue, message_id=MessageId(layout.id_text(raw_id)), token=token),
        payload=payload,
        headers=headers,
        key=key,
        priority=priority,
        attempt=attempt,
        enqueued_at_ms=enqueued_at,
        available_at_ms=available_at,
        lease_until_ms=deadline,
        wait_ms=now - available_at if now > available_at else 0,
        idempotency_key=idempotency_key,
        last_error=packed[_HANDED_SIZE:body_at].decode() if error_size else None,
    )


def dead_messages(reply: Sequence[Any]) -> list[DeadMessage]:
    return [_dead_message(reply[at], reply[at + 1]) for at in range(1, len(reply), 2)]


def _dead_message(raw_id: bytes, packed: bytes) -> DeadMessage:
    _, ident_size, attempts, max_attempts, reason, enqueued_at, died_at, priority, error_size = _unpack_dead(
        packed
    )
    error_at = _DEAD_SIZE + ident_size
    body_at = error_at + error_size
    key, idempotency_key, headers, payload = layout.unpack_body(packed, body_at)
    return DeadMessage(
        queue=queue_of(packed[_DEAD_SIZE:error_at]),
        message_id=MessageId(layout.id_text(raw_id)),
        payload=payload,
        headers=headers,
        key=key,
        priority=priority,
        idempotency_key=idempotency_key,
        attempts=attempts,
        max_attempts=max_attempts,
        reason=layout.DEATH_REASONS[reason],
        error=packed[error_at:body_at].decode(),
        enqueued_at_ms=enqueued_at,
        died_at_ms=died_at,
    )


_STATE_SIZE = 12


def states(reply: Sequence[Any]) -> list[QueueState]:
    return [_state(reply[at : at + _STATE_SIZE]) for at in range(1, len(reply), _STATE_SIZE)]


def _state(values: Sequence[Any]) -> QueueState:
    (ident, depth, delayed, running, limit, environment_depth, environment_running, environment_limit) = (
        values[:8]
    )
    age, paused, popped, packed = values[8:]
    return QueueState(
        queue=queue_of(ident),
        depth=depth,
        delayed=delayed,
        running=running,
        limit=limit or None,
        environment_depth=environment_depth,
        environment_running=environment_running,
        environment_limit=environment_limit or None,
        oldest_age_ms=age,
        paused=paused == b"1",
        popped=popped == b"1",
        odometers=layout.odometers(packed),
    )


def swept(reply: Sequence[Any], *, after: Swept) -> Swept:
    """What a round of the sweeper did, added to the rounds before it."""
    _, lapsed, expired, dead, orphans, more = reply
    return Swept(
        lapsed=after.lapsed + lapsed,
        expired=after.expired + expired,
        dead=after.dead + dead,
        orphans=after.orphans + orphans,
        more=more == b"1",
    )
