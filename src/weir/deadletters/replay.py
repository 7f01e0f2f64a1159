"""Sends letters back to their queue, or deletes them, and changes the counts when that is written down.

A redrive claims letters in a statement of its own, sends them, and then writes down what it sent. While a
claim lasts, nobody else redrives or deletes the letters. A replay goes out under an id and an idempotency
key that follow from the letter's id. If its process ends before it wrote the replay down, the claim lapses,
and the next try is a duplicate in the queue; only the letter and the counts change. So nothing is replayed
twice, for as long as the queue remembers idempotency keys, and nothing is lost.

Replays pass closed gates and still keep the order. A gate is closed while pushes of its partition wait in
PostgreSQL, so that later pushes stay behind them. A dead letter had its place in the queue before any push
that still waits, so it may go in before them. Among letters, a batch is one call in their original order, and
a bulk action does not move on past a letter that found no room or that somebody else has in hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeVar

from weir.broker.broker import Broker, GateRule
from weir.control.database import Connection, Database, execute, fetch
from weir.deadletters.dead_letter import DeadLetter
from weir.deadletters.evaluation import Unanswered, patched
from weir.deadletters.lineage import replay_headers, replay_id_of, replay_key_of
from weir.deadletters.patch import Patch
from weir.deadletters.queries import DEAD_LETTERS
from weir.deadletters.summary import count_gone
from weir.errors import InvalidInput
from weir.model.durations import SECOND_MS
from weir.model.ids import MessageId
from weir.model.message import Enqueue, NewMessage, check_message
from weir.model.names import QueueRef

Key = TypeVar("Key")

CLAIM_MS = 10 * SECOND_MS
"""How long letters are in one hand; it has to send one batch and write that down."""
GONE_OUT = frozenset((Enqueue.ACCEPTED, Enqueue.DUPLICATE, Enqueue.KEY_REUSED))
"""With these outcomes the message is in the queue. A reused key means that an earlier try went out with
another patch, and was not written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """The result of a batch: the replay's id by letter id, and the reason by id of each skipped letter."""

    replayed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    """Letters that were redriven or deleted meanwhile."""
    full: bool = False
    """The queue had no room."""
    stopped: str | None = None
    """Why a letter was not sent, and none after it; letters in no map were not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """The letters that one step has claimed, so that nobody else sends or deletes them."""

    database: Database
    claim: str
    letters: set[str] = field(default_factory=set)

    async def take(self, ids: Sequence[str], *, now_ms: int) -> set[str]:
        """Claim letters, and return which of them it got. The claim is committed before anything is sent."""
        rows = await self.database.fetch(
            DEAD_LETTERS["claim_letters"],
            ids=list(ids),
            claim=self.claim,
            now_ms=now_ms,
            until_ms=now_ms + CLAIM_MS,
        )
        got = {str(row["id"]) for row in rows}
        self.letters.update(got)
        return got

    async def open(self) -> None:
        """Let go of the letters that were not sent."""
        if self.letters:
            ids = sorted(self.letters)
            self.letters.clear()
            await self.database.execute(DEAD_LETTERS["release_letters"], ids=ids, claim=self.claim)

    async def which_are_dead(self, ids: Sequence[str]) -> set[str]:
        """Which of these letters are still dead, so that somebody else has them in hand if this one has
        not."""
        if not ids:
            return set()
        rows = await self.database.fetch(DEAD_LETTERS["still_dead"], ids=list(ids))
        return {str(row["id"]) for row in rows}


async def prepare(
    letters: Sequence[DeadLetter], action_id: str | None = None, patch: Patch | None = None
) -> tuple[dict[str, NewMessage], dict[str, str]]:
    """The replays of letters by letter id, and why others cannot be replayed."""
    payloads: Sequence[bytes | Unanswered] = [letter.payload for letter in letters]
    if patch is not None:
        payloads = await patched(patch, letters)
    messages: dict[str, NewMessage] = {}
    skipped: dict[str, str] = {}
    for letter, payload in zip(letters, payloads, strict=True):
        if isinstance(payload, Unanswered):
            skipped[letter.id] = payload.reason
        else:
            messages[letter.id] = _replay_of(letter, payload, action_id)
    return messages, skipped


async def send(
    broker: Broker, hand: Hand, queue: QueueRef, messages: Mapping[str, NewMessage], *, now_ms: int
) -> Replays:
    """Claim letters of one queue and send their replays in the given order, up to one that cannot be sent."""
    if not messages:
        return Replays()
    got = await hand.take(list(messages), now_ms=now_ms)
    others = await hand.which_are_dead([one for one in messages if one not in got])
    free = takewhile(lambda one: one not in others, messages)
    mine = {one: messages[one] for one in free if one in got}
    stopped = "another redrive has the next letters in hand; waiting for it" if others else None
    outcomes, refused = await _enqueue(broker, queue, mine)
    replayed: dict[str, str] = {}
    for letter_id, outcome in outcomes.items():
        if outcome not in GONE_OUT:
            stopped = f"the queue `{queue.queue}` is full; waiting for room"
            break
        replayed[letter_id] = messages[letter_id].id
    return Replays(
        replayed=replayed,
        skipped=refused,
        gone=frozenset(one for one in messages if one not in got and one not in others),
        full=len(replayed) < len(outcomes),
        stopped=stopped,
    )


async def _enqueue(
    broker: Broker, queue: QueueRef, messages: Mapping[str, NewMessage]
) -> tuple[dict[str, Enqueue], dict[str, str]]:
    """The outcome of each message, and why a queue would take some of them never."""
    if not messages:
        return {}, {}
    refused: dict[str, str] = {}
    try:
        answers = await broker.enqueue(queue, list(messages.values()), entry=GateRule.PASS)
    except InvalidInput:
        # This is rare, so messages are checked one by one only after the queue refused one of them.
        messages, refused = split_sendable(messages)
        if not refused:
            raise
        if not messages:
            return {}, refused
        answers = await broker.enqueue(queue, list(messages.values()), entry=GateRule.PASS)
    return {key: one.outcome for key, one in zip(messages, answers, strict=True)}, refused


async def settle(
    connection: Connection, hand: Hand, replayed: Mapping[str, str], *, action_id: str | None, now_ms: int
) -> None:
    """Write down which letters were replayed, subtract them from the counts, and let go of the others."""
    rows = await fetch(
        connection,
        DEAD_LETTERS["mark_replayed"],
        ids=list(replayed),
        replay_ids=list(replayed.values()),
        action=action_id,
        now_ms=now_ms,
    )
    if unsent := sorted(hand.letters - replayed.keys()):
        await execute(connection, DEAD_LETTERS["release_letters"], ids=unsent, claim=hand.claim)
    await count_gone(connection, rows, now_ms=now_ms)


async def delete(connection: Connection, letter_ids: Sequence[str], *, now_ms: int) -> int:
    """Delete letters that are still dead and in no hand, and subtract them; return how many there were."""
    rows = await fetch(connection, DEAD_LETTERS["delete_letters"], ids=list(letter_ids), now_ms=now_ms)
    await count_gone(connection, rows, now_ms=now_ms)
    return len(rows)


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


def _replay_of(letter: DeadLetter, payload: bytes, action_id: str | None) -> NewMessage:
    return NewMessage(
        payload=payload,
        id=MessageId(replay_id_of(letter.id, died_at_ms=letter.died_at_ms)),
        headers=replay_headers(letter, action_id),
        key=letter.key,
        priority=letter.priority,
        idempotency_key=replay_key_of(letter.id),
    )
