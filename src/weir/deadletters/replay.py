"""Sending letters back to their queue, and deleting them: both settle the summary in the same transaction.

A replay goes out under an id and an idempotency key that follow from the letter's id, while the letter is
locked. If the transaction is lost after the message went out, the next try is a duplicate in the queue and
only settles; so nothing is replayed twice, for as long as the queue remembers idempotency keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weir.broker.broker import Broker
from weir.broker.checks import check_message
from weir.control.database import Connection, fetch
from weir.deadletters.dead_letter import SQL, DeadLetter
from weir.deadletters.lineage import replay_headers, replay_id_of, replay_key_of
from weir.deadletters.patch import Patch
from weir.deadletters.summary import DeadTally, apply_tally
from weir.errors import InvalidInput
from weir.model.ids import MessageId
from weir.model.message import Enqueue, NewMessage

GONE_OUT = frozenset((Enqueue.ACCEPTED, Enqueue.DUPLICATE, Enqueue.KEY_REUSED))
"""A reused key means that an earlier try, with another patch, had gone out before it was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """What became of a batch: letter id to replay id, and letter id to why it was left alone."""

    replayed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    full: bool = False
    """The queue had no room; the letters that are in neither map still wait for their turn."""


async def replay(
    connection: Connection,
    broker: Broker,
    letters: Sequence[DeadLetter],
    *,
    now_ms: int,
    task_id: str | None = None,
    patch: Patch | None = None,
) -> Replays:
    """Send locked letters of one queue back to it in the order given, and settle those that went out."""
    messages, skipped = _prepared(letters, task_id, patch)
    if not messages:
        return Replays(skipped=skipped)
    try:
        outcomes = await broker.enqueue(letters[0].queue, list(messages.values()), through_gate=True)
    except InvalidInput:
        # Rare, so the good ones are only told from the bad ones when there is a bad one.
        messages, refused = _sendable(messages)
        skipped |= refused
        if not refused:
            raise
        outcomes = await broker.enqueue(letters[0].queue, list(messages.values()), through_gate=True)
    replayed: dict[str, str] = {}
    for (letter_id, message), enqueued in zip(messages.items(), outcomes, strict=True):
        if enqueued.outcome not in GONE_OUT:
            break
        replayed[letter_id] = message.id
    await _settle(connection, replayed, task_id=task_id, now_ms=now_ms)
    return Replays(replayed=replayed, skipped=skipped, full=len(replayed) < len(messages))


def unsendable(
    letters: Sequence[DeadLetter], *, task_id: str | None = None, patch: Patch | None = None
) -> dict[str, str]:
    """Which of these letters `replay` would leave alone, and why."""
    messages, skipped = _prepared(letters, task_id, patch)
    return skipped | _sendable(messages)[1]


async def delete(connection: Connection, letter_ids: Sequence[str], *, now_ms: int) -> int:
    """Remove letters that are still dead, and their counts; how many there were."""
    rows = await fetch(connection, SQL["delete_letters"], ids=list(letter_ids))
    tally = DeadTally()
    tally.count(rows, by=-1)
    await apply_tally(connection, tally, now_ms=now_ms)
    return len(rows)


async def _settle(
    connection: Connection, replayed: dict[str, str], *, task_id: str | None, now_ms: int
) -> None:
    rows = await fetch(
        connection,
        SQL["mark_replayed"],
        ids=list(replayed),
        replay_ids=list(replayed.values()),
        task=task_id,
        now_ms=now_ms,
    )
    tally = DeadTally()
    tally.count(rows, by=-1)
    await apply_tally(connection, tally, now_ms=now_ms)


def _prepared(
    letters: Sequence[DeadLetter], task_id: str | None, patch: Patch | None
) -> tuple[dict[str, NewMessage], dict[str, str]]:
    messages: dict[str, NewMessage] = {}
    skipped: dict[str, str] = {}
    for letter in letters:
        try:
            messages[letter.id] = _replay_of(letter, task_id, patch)
        except InvalidInput as problem:
            skipped[letter.id] = problem.message
    return messages, skipped


def _sendable(messages: dict[str, NewMessage]) -> tuple[dict[str, NewMessage], dict[str, str]]:
    """The messages that a queue would take, and why it would not take the others."""
    good, refused = dict(messages), {}
    for letter_id, message in messages.items():
        try:
            check_message(message)
        except InvalidInput as problem:
            refused[letter_id] = problem.message
            del good[letter_id]
    return good, refused


def _replay_of(letter: DeadLetter, task_id: str | None, patch: Patch | None) -> NewMessage:
    return NewMessage(
        payload=letter.payload if patch is None else patch.apply(letter),
        id=MessageId(replay_id_of(letter.id, died_at_ms=letter.died_at_ms)),
        headers=replay_headers(letter, task_id),
        key=letter.key,
        priority=letter.priority,
        idempotency_key=replay_key_of(letter.id),
    )
