"""Copies deaths into the dead letter queues that have work to do or are popped, oldest first.

A loop of its own: the mover never waits for a queue that is full or away. How far a consumer's deaths are
copied is one number, saved in the transaction that sends them. If that transaction is lost, the same copies
go out again under the same ids and keys, and the queue knows them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from weir.broker.broker import Broker
from weir.control.database import Connection, Database, Row, execute, fetch, fetch_one
from weir.control.scopes import scope_of
from weir.control.sql import load_queries
from weir.deadletters.copies import copy_of
from weir.deadletters.dead_letter import SQL as LETTERS
from weir.deadletters.dead_letter import DeadLetter, letter_of
from weir.deadletters.replay import GONE_OUT
from weir.errors import NotFound, WeirError
from weir.model.message import QueueState
from weir.model.names import QueueRef

SQL = load_queries("weir.deadletters", "dead_letter_queues.sql")
log = structlog.get_logger(__name__)

IDLE_S = 1.0
MAX_BACKOFF_S = 10.0
LOOK_AGAIN_S = 2.0
"""How soon to look again whether somebody pops a dead letter queue, or whether a full one has room."""
BATCH = 100
"""Whole letters of up to 1 MiB each are in memory for one batch."""
MAX_WAITING = 10_000
"""Copies go out while fewer messages wait: the letters are safe, and millions need not be in Redis too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dying:
    """A queue with uncopied deaths, and its dead letter queue."""

    consumer_key: int
    queue: QueueRef
    dead_letter_queue: QueueRef
    receives: bool
    """The dead letter queue has work to do, or was popped before."""


class DeadLetterCopier:
    """Run one in every process; a lock lets one at a time copy the deaths of a queue."""

    def __init__(self, broker: Broker, database: Database) -> None:
        self._broker = broker
        self._database = database
        self._look_at: dict[QueueRef, float] = {}

    async def run(self) -> None:
        """Copy for ever; while a store is out of reach, wait and try again."""
        backoff_s = IDLE_S
        while True:
            try:
                more = await self.round()
            except WeirError as error:
                log.warning("copies of dead letters wait", error=str(error), retry_in_s=backoff_s)
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)
                continue
            backoff_s = IDLE_S
            if not more:
                await asyncio.sleep(IDLE_S)

    async def round(self) -> bool:
        """One batch of every queue with uncopied deaths; whether there may be more right now."""
        more = False
        for row in await self._database.fetch(SQL["uncopied"]):
            dying = _dying(row)
            if self._look_at.get(dying.dead_letter_queue, 0.0) <= time.monotonic():
                more = await self._copy(dying) or more
        return more

    async def _copy(self, dying: Dying) -> bool:
        """Copy one batch; whether there may be more right now."""
        state = await self._state(dying.dead_letter_queue)
        if state is None or not (dying.receives or state.popped) or state.depth >= MAX_WAITING:
            return self._look_later(dying)
        async with self._database.transaction() as connection:
            after = await _begin(connection, dying, popped=state.popped)
            if after is None:
                return False
            letters = await _next_deaths(connection, dying, after=after)
            sent = await self._send(dying.dead_letter_queue, letters)
            if sent:
                last = letters[sent - 1].seq
                await execute(connection, SQL["save_copied"], consumer=dying.consumer_key, copied_to=last)
        return sent == BATCH if sent == len(letters) else self._look_later(dying)

    async def _state(self, queue: QueueRef) -> QueueState | None:
        try:
            return await self._broker.state(queue)
        except NotFound:
            return None

    async def _send(self, queue: QueueRef, letters: Sequence[DeadLetter]) -> int:
        """Put copies into the queue; how many of the first ones are there now."""
        if not letters:
            return 0
        # Gates keep the order of producers, who have nothing to do with these messages.
        answers = await self._broker.enqueue(queue, [copy_of(one) for one in letters], through_gate=True)
        refused = [index for index, answer in enumerate(answers) if answer.outcome not in GONE_OUT]
        return min(refused, default=len(letters))

    def _look_later(self, dying: Dying) -> bool:
        self._look_at[dying.dead_letter_queue] = time.monotonic() + LOOK_AGAIN_S
        return False


def _dying(row: Row) -> Dying:
    environment = scope_of(row)
    return Dying(
        consumer_key=row["consumer_key"],
        queue=environment.queue(row["queue"]),
        dead_letter_queue=environment.queue(row["dead_letter_queue"]),
        receives=row["receives"],
    )


async def _begin(connection: Connection, dying: Dying, *, popped: bool) -> int | None:
    """Lock the queue's progress, made if need be; None while somebody else copies."""
    name = dying.dead_letter_queue.queue
    await execute(
        connection, SQL["begin_copying"], consumer=dying.consumer_key, dead_letter_queue=name, popped=popped
    )
    row = await fetch_one(connection, SQL["lock_copying"], consumer=dying.consumer_key)
    return None if row is None else int(row["copied_to"])


async def _next_deaths(connection: Connection, dying: Dying, *, after: int) -> list[DeadLetter]:
    rows = await fetch(
        connection, LETTERS["next_deaths"], consumer=dying.consumer_key, after=after, limit=BATCH
    )
    return [letter_of(row) for row in rows]
