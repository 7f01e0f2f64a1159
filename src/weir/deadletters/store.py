"""Finds, redrives and deletes single dead letters of a queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weir.broker.broker import Broker
from weir.channels.consumers import consumer_key
from weir.control.audit_log import AuditedChange, record
from weir.control.database import Connection, Database, fetch
from weir.control.scopes import scope_names
from weir.deadletters.dead_letter import DeadLetter, Position, read_letters, within_bytes
from weir.deadletters.groups import group_keys
from weir.deadletters.queries import COUNTS, DEAD_LETTERS
from weir.deadletters.replay import Hand, delete, prepare, send, settle
from weir.errors import Conflict, InvalidInput, NotFound, QueueFull
from weir.model.clock import Clock, SystemClock
from weir.model.ids import MessageId, check_id, new_id
from weir.model.names import EnvironmentRef, QueueRef

PAGE_BYTES = 1 << 20
"""Bytes of letters in one page, unless the first letter alone has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPage:
    """Some dead letters of a queue, and where the next page begins; None after the last."""

    letters: Sequence[DeadLetter] = ()
    next: Position | None = None


class DeadLetterStore:
    """Dead letters by queue. A letter of another queue counts as not found."""

    def __init__(self, database: Database, broker: Broker, *, clock: Clock | None = None) -> None:
        self._database = database
        self._broker = broker
        self._clock = clock or SystemClock()

    async def newest(
        self,
        queue: QueueRef,
        *,
        fingerprint: str | None = None,
        before: Position | None = None,
        limit: int = 50,
    ) -> LetterPage:
        """A page of the queue's dead letters, the last enqueued first."""
        walk_key = await consumer_key(self._database, queue)
        query = "list_by_consumer"
        if walk_key is not None and fingerprint is not None:
            walk_key = (await group_keys(self._database, queue.scope, fingerprint)).get(walk_key)
            query = "list_by_group"
        if walk_key is None:
            return LetterPage()
        start = before or Position()
        rows = await self._database.fetch(
            DEAD_LETTERS[query],
            walk_key=walk_key,
            before_ms=start.enqueued_at_ms,
            before_id=start.id,
            limit=limit,
        )
        ids = within_bytes(rows, PAGE_BYTES)
        letters = (await read_letters(self._database, ids))[::-1]
        if len(ids) < len(rows) or len(rows) == limit:
            last = rows[len(ids) - 1]
            return LetterPage(
                letters=letters,
                next=Position(enqueued_at_ms=last["position_ms"], id=str(last["position_id"])),
            )
        return LetterPage(letters=letters)

    async def counts(self, environment: EnvironmentRef) -> dict[str, int]:
        """The number of dead letters by queue, from the summary alone."""
        rows = await self._database.fetch(COUNTS["counts_of"], **scope_names(environment))
        return {row["queue"]: row["dead_count"] for row in rows}

    async def find(self, queue: QueueRef, letter_id: str) -> DeadLetter:
        """One letter, dead or replayed before."""
        checked = check_id(letter_id, what="message")
        found = await read_letters(self._database, [checked])
        if not found or found[0].queue != queue:
            raise NotFound(f"there is no dead letter `{checked}` in `{queue.queue}`")
        return found[0]

    async def fate_of_replay(self, letter: DeadLetter) -> str | None:
        """What became of a letter's replay: died, acked, cancelled or waiting; None if it was not
        replayed."""
        if letter.replay_id is None:
            return None
        if letter.replay_result is not None:
            return letter.replay_result
        (held,) = await self._broker.holds(letter.queue, [MessageId(letter.replay_id)])
        if held:
            return "waiting"
        died = await self._database.fetch(DEAD_LETTERS["which_died"], ids=[letter.replay_id])
        if died:
            return "died"
        (cancelled,) = await self._broker.were_cancelled(letter.queue.scope, [MessageId(letter.replay_id)])
        return "cancelled" if cancelled else "acked"

    async def redrive(self, queue: QueueRef, letter_id: str, *, by: str) -> str:
        """Send a dead letter back to its queue; return the id of the new message."""
        letter = await self.find(queue, letter_id)
        now_ms = self._clock.now_ms()
        hand = Hand(database=self._database, claim=new_id())
        try:
            messages, _ = await prepare([letter])
            replays = await send(self._broker, hand, queue, messages, now_ms=now_ms)
            if replays.skipped:
                raise InvalidInput(f"`{letter.id}` cannot be replayed: {replays.skipped[letter.id]}")
            if replays.full:
                raise QueueFull(f"the queue `{queue.queue}` is full; try again later", retry_after_s=1)
            if letter.id not in replays.replayed:
                raise self._not_free(letter, in_hand=letter.id not in replays.gone)
            new_message_id = replays.replayed[letter.id]
            async with self._database.transaction() as connection:
                await settle(connection, hand, replays.replayed, action_id=None, now_ms=now_ms)
                await self._record(connection, letter, by, "dlq.replay", replayed_as=new_message_id)
        except Exception:
            await hand.open()
            raise
        return new_message_id

    async def delete(self, queue: QueueRef, letter_id: str, *, by: str, exhausted_only: bool = True) -> None:
        """Delete a dead letter; by default only one that used up its attempts."""
        letter = await self.find(queue, letter_id)
        if letter.dead and exhausted_only and not letter.exhausted:
            raise Conflict(
                f"`{letter.id}` died after {letter.attempts} of {letter.max_attempts} attempts; "
                "a letter that did not use them up is deleted only with `force`"
            )
        async with self._database.transaction() as connection:
            if not await delete(connection, [letter.id], now_ms=self._clock.now_ms()):
                still = await fetch(connection, DEAD_LETTERS["still_dead"], ids=[letter.id])
                raise self._not_free(letter, in_hand=bool(still))
            await self._record(connection, letter, by, "dlq.delete")

    def _not_free(self, letter: DeadLetter, *, in_hand: bool) -> Conflict:
        if in_hand:
            return Conflict(f"`{letter.id}` is being redriven just now; look at it again in some seconds")
        return Conflict(f"`{letter.id}` is not dead any more: it was replayed or deleted before")

    async def _record(
        self, connection: Connection, letter: DeadLetter, actor: str, action: str, **details: Any
    ) -> None:
        change = AuditedChange.inside(
            letter.queue.scope,
            actor=actor,
            action=action,
            target=letter.id,
            queue=letter.queue.queue,
            **details,
        )
        await record(connection, change, at_ms=self._clock.now_ms())
