"""Sends letters back to their queue, or deletes them, and changes the counts in the same transaction.

A replay goes out while its letter is locked, under an id and an idempotency key that follow from the
letter's id. If the transaction is lost after the message went out, the next try is a duplicate in the queue,
and only the letter and the counts change. So nothing is replayed twice, for as long as the queue remembers
idempotency keys.

Replays pass closed gates and still keep the order. A gate is closed while pushes of its partition wait in
PostgreSQL, so that later pushes stay behind them. A dead letter had its place in the queue before any push
that still waits, so it may go in before them. Among letters, a batch is one call in their original order, and
a bulk action does not move on past a letter that found no room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from weir.broker.broker import Broker, GateRule
from weir.control.database import Connection, fetch
from weir.deadletters.dead_letter import DeadLetter
from weir.deadletters.lineage import replay_headers, replay_id_of, replay_key_of
from weir.deadletters.patch import Patch
from weir.deadletters.queries import DEAD_LETTERS
from weir.deadletters.summary import count_gone
from weir.errors import InvalidInput
from weir.model.ids import MessageId
from weir.model.message import Enqueue, NewMessage, check_message

Key = TypeVar("Key")

GONE_OUT = frozenset((Enqueue.ACCEPTED, Enqueue.DUPLICATE, Enqueue.KEY_REUSED))
"""With these outcomes the message is in the queue. A reused key means that an earlier try went out with
another patch, and its transaction was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """The result of a batch: the replay's id by letter id, and the reason by id of each skipped letter."""

    replayed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    full: bool = False
    """The queue had no room; letters in neither map were not sent."""


async def send_replays(
    connection: Connection,
    broker: Broker,
    letters: Sequence[DeadLetter],
    *,
    now_ms: int,
    action_id: str | None = None,
    patch: Patch | None = None,
) -> Replays:
    """Send locked letters of one queue back to it in the given order, and mark the sent ones as replayed."""
    messages, skipped = _prepare(letters, action_id, patch)
    if not messages:
        return Replays(skipped=skipped)
    try:
        outcomes = await broker.enqueue(letters[0].queue, list(messages.values()), entry=GateRule.PASS)
    except InvalidInput:
        # This is rare, so messages are checked one by one only after the queue refused one of them.
        messages, refused = split_sendable(messages)
        skipped |= refused
        if not refused:
            raise
        outcomes = await broker.enqueue(letters[0].queue, list(messages.values()), entry=GateRule.PASS)
    replayed: dict[str, str] = {}
    for (letter_id, message), enqueued in zip(messages.items(), outcomes, strict=True):
        if enqueued.outcome not in GONE_OUT:
            break
        replayed[letter_id] = message.id
    await _settle(connection, replayed, action_id=action_id, now_ms=now_ms)
    return Replays(replayed=replayed, skipped=skipped, full=len(replayed) < len(messages))


def unsendable(
    letters: Sequence[DeadLetter], *, action_id: str | None = None, patch: Patch | None = None
) -> dict[str, str]:
    """The letters that `send_replays` would skip, by id, with the reason."""
    messages, skipped = _prepare(letters, action_id, patch)
    return skipped | split_sendable(messages)[1]


async def delete(connection: Connection, letter_ids: Sequence[str], *, now_ms: int) -> int:
    """Delete letters that are still dead, and subtract them from the counts; return how many there were."""
    rows = await fetch(connection, DEAD_LETTERS["delete_letters"], ids=list(letter_ids))
    await count_gone(connection, rows, now_ms=now_ms)
    return len(rows)


async def _settle(
    connection: Connection, replayed: dict[str, str], *, action_id: str | None, now_ms: int
) -> None:
    rows = await fetch(
        connection,
        DEAD_LETTERS["mark_replayed"],
        ids=list(replayed),
        replay_ids=list(replayed.values()),
        action=action_id,
        now_ms=now_ms,
    )
    await count_gone(connection, rows, now_ms=now_ms)


def _prepare(
    letters: Sequence[DeadLetter], action_id: str | None, patch: Patch | None
) -> tuple[dict[str, NewMessage], dict[str, str]]:
    messages: dict[str, NewMessage] = {}
    skipped: dict[str, str] = {}
    for letter in letters:
        try:
            messages[letter.id] = _replay_of(letter, action_id, patch)
        except InvalidInput as problem:
            skipped[letter.id] = problem.message
    return messages, skipped


def split_sendable(messages: Mapping[Key, NewMessage]) -> tuple[dict[Key, NewMessage], dict[Key, str]]:
    """The messages that a queue would take, and why it would not take the others."""
    good, refused = {}, {}
    for key, message in messages.items():
        try:
            check_message(message)
            good[key] = message
        except InvalidInput as problem:
            refused[key] = problem.message
    return good, refused


def _replay_of(letter: DeadLetter, action_id: str | None, patch: Patch | None) -> NewMessage:
    return NewMessage(
        payload=letter.payload if patch is None else patch.apply(letter),
        id=MessageId(replay_id_of(letter.id, died_at_ms=letter.died_at_ms)),
        headers=replay_headers(letter, action_id),
        key=letter.key,
        priority=letter.priority,
        idempotency_key=replay_key_of(letter.id),
    )
