"""Finds, redrives and deletes single dead letters of a queue."""

from __future__ import annotations

from typing import Any

from weir.broker.broker import Broker
from weir.channels.consumers import consumer_key
from weir.control.audit_log import AuditedChange, record
from weir.control.database import Connection, Database
from weir.control.scopes import scope_names
from weir.deadletters.dead_letter import DeadLetter, Position, lock_letters, read_letters
from weir.deadletters.groups import group_keys
from weir.deadletters.queries import COUNTS, DEAD_LETTERS
from weir.deadletters.replay import delete, send_replays
from weir.errors import Conflict, InvalidInput, NotFound, QueueFull
from weir.model.clock import Clock, SystemClock
from weir.model.ids import MessageId, check_id
from weir.model.names import EnvironmentRef, QueueRef


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
    ) -> list[DeadLetter]:
        """A page of the queue's dead letters, the last enqueued first."""
        walk_key = await consumer_key(self._database, queue)
        query = "list_by_consumer"
        if walk_key is not None and fingerprint is not None:
            walk_key = (await group_keys(self._database, queue.scope, fingerprint)).get(walk_key)
            query = "list_by_group"
        if walk_key is None:
            return []
        start = before or Position()
        rows = await self._database.fetch(
            DEAD_LETTERS[query],
            walk_key=walk_key,
            before_ms=start.enqueued_at_ms,
            before_id=start.id,
            limit=limit,
        )
        return (await read_letters(self._database, [str(row["id"]) for row in rows]))[::-1]

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
        """What became of a letter's replay: died, acked or waiting; None if it was not replayed."""
        if letter.replay_id is None:
            return None
        if letter.replay_result is not None:
            return letter.replay_result
        (held,) = await self._broker.holds(letter.queue, [MessageId(letter.replay_id)])
        if held:
            return "waiting"
        died = await self._database.fetch(DEAD_LETTERS["which_died"], ids=[letter.replay_id])
        return "died" if died else "acked"

    async def redrive(self, queue: QueueRef, letter_id: str, *, by: str) -> str:
        """Send a dead letter back to its queue; return the id of the new message."""
        letter = await self.find(queue, letter_id)
        now_ms = self._clock.now_ms()
        async with self._database.transaction() as connection:
            locked = await self._lock(connection, letter)
            replays = await send_replays(connection, self._broker, [locked], now_ms=now_ms)
            if replays.skipped:
                raise InvalidInput(f"`{letter.id}` cannot be replayed: {replays.skipped[letter.id]}")
            if replays.full:
                raise QueueFull(f"the queue `{queue.queue}` is full; try again later", retry_after_s=1)
            new_id = replays.replayed[letter.id]
            await self._record(connection, letter, by, "dlq.replay", replayed_as=new_id)
        return new_id

    async def delete(self, queue: QueueRef, letter_id: str, *, by: str, exhausted_only: bool = True) -> None:
        """Delete a dead letter; by default only one that used up its attempts."""
        letter = await self.find(queue, letter_id)
        async with self._database.transaction() as connection:
            locked = await self._lock(connection, letter)
            if exhausted_only and not locked.exhausted:
                raise Conflict(
                    f"`{letter.id}` died after {letter.attempts} of {letter.max_attempts} attempts; "
                    "a letter that did not use them up is deleted only with `force`"
                )
            await delete(connection, [letter.id], now_ms=self._clock.now_ms())
            await self._record(connection, letter, by, "dlq.delete")

    async def _lock(self, connection: Connection, letter: DeadLetter) -> DeadLetter:
        locked = await lock_letters(connection, [letter.id])
        if not locked:
            raise Conflict(f"`{letter.id}` is not dead any more: it was replayed or deleted before")
        return locked[0]

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
