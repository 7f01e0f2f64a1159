"""Copies deaths, the oldest first, into the dead letter queues that have an action or are popped.

It is a loop of its own, so that the mover never waits for a queue that is full or out of reach. One number
per consumer says how far its deaths are copied. The transaction that sends the copies saves it. If that
transaction is lost, the same copies go out again under the same ids and keys, and the queue drops them as
duplicates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from weir.broker.broker import Broker, GateRule
from weir.control.database import Connection, Database, Row, execute, fetch, fetch_one
from weir.control.scopes import scope_of
from weir.deadletters.copies import copy_id_of, copy_of
from weir.deadletters.dead_letter import DeadLetter, letter_of
from weir.deadletters.loops import repeat
from weir.deadletters.queries import DEAD_LETTER_QUEUES, DEAD_LETTERS
from weir.deadletters.replay import GONE_OUT
from weir.errors import NotFound
from weir.lineage.children import ChildMessage, Kinship, record_children
from weir.model.message import QueueState
from weir.model.names import QueueRef

log = structlog.get_logger(__name__)

IDLE_S = 1.0
MAX_BACKOFF_S = 10.0
LOOK_AGAIN_S = 2.0
"""How long to wait before the next look at a dead letter queue that nobody pops, or that is full."""
BATCH = 100
"""Letters per transaction. Each may have 1 MiB, and a batch is in memory."""
MAX_WAITING = 10_000
"""Copies go out while fewer messages wait. The letters are in PostgreSQL; Redis need not hold millions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncopiedDeaths:
    """A queue with deaths that were not copied, and its dead letter queue."""

    consumer_key: int
    queue: QueueRef
    dead_letter_queue: QueueRef
    receives: bool
    """Whether the dead letter queue has an action, or was popped before."""


class DeadLetterCopier:
    """Run one in every process; a lock lets one at a time copy the deaths of a queue."""

    def __init__(self, broker: Broker, database: Database) -> None:
        self._broker = broker
        self._database = database
        self._look_at: dict[QueueRef, float] = {}

    async def run(self) -> None:
        """Copy for ever; while a store is out of reach, wait and try again."""
        await repeat(self.run_round, idle_s=IDLE_S, longest_s=MAX_BACKOFF_S, waits="copies of dead letters")

    async def run_round(self) -> bool:
        """Copy one batch of every queue with uncopied deaths; return whether there may be more now."""
        more = False
        for row in await self._database.fetch(DEAD_LETTER_QUEUES["uncopied"]):
            uncopied = _uncopied(row)
            if self._look_at.get(uncopied.dead_letter_queue, 0.0) <= time.monotonic():
                more = await self._copy(uncopied) or more
        return more

    async def _copy(self, uncopied: UncopiedDeaths) -> bool:
        """Copy one batch; return whether there may be more now."""
        state = await self._state(uncopied.dead_letter_queue)
        if state is None or not (uncopied.receives or state.popped) or state.depth >= MAX_WAITING:
            return self._look_later(uncopied)
        async with self._database.transaction() as connection:
            after = await _begin(connection, uncopied, popped=state.popped)
            if after is None:
                return False
            letters = await _next_deaths(connection, uncopied, after=after)
            sent = await self._send(uncopied.dead_letter_queue, letters)
            if sent:
                last = letters[sent - 1].seq
                await record_children(connection, _copies(uncopied.dead_letter_queue, letters[:sent]))
                await execute(
                    connection,
                    DEAD_LETTER_QUEUES["save_copied"],
                    consumer=uncopied.consumer_key,
                    copied_to=last,
                )
        return sent == BATCH if sent == len(letters) else self._look_later(uncopied)

    async def _state(self, queue: QueueRef) -> QueueState | None:
        try:
            return await self._broker.state(queue)
        except NotFound:
            return None

    async def _send(self, queue: QueueRef, letters: Sequence[DeadLetter]) -> int:
        """Put copies into the queue; return how many went in before the first refusal."""
        if not letters:
            return 0
        # Gates keep the order of producers, who have nothing to do with these messages.
        answers = await self._broker.enqueue(queue, [copy_of(one) for one in letters], entry=GateRule.PASS)
        refused = [index for index, answer in enumerate(answers) if answer.outcome not in GONE_OUT]
        return min(refused, default=len(letters))

    def _look_later(self, uncopied: UncopiedDeaths) -> bool:
        self._look_at[uncopied.dead_letter_queue] = time.monotonic() + LOOK_AGAIN_S
        return False


def _copies(queue: QueueRef, letters: Sequence[DeadLetter]) -> list[ChildMessage]:
    return [
        ChildMessage(
            queue=queue,
            message_id=copy_id_of(letter.id, died_at_ms=letter.died_at_ms),
            parent_id=letter.id,
            kind=Kinship.COPIED,
            at_ms=letter.died_at_ms,
        )
        for letter in letters
    ]


def _uncopied(row: Row) -> UncopiedDeaths:
    environment = scope_of(row)
    return UncopiedDeaths(
        consumer_key=row["consumer_key"],
        queue=environment.queue(row["queue"]),
        dead_letter_queue=environment.queue(row["dead_letter_queue"]),
        receives=row["receives"],
    )


async def _begin(connection: Connection, uncopied: UncopiedDeaths, *, popped: bool) -> int | None:
    """Lock the consumer's progress, and create it if need be; return the last arrival that was copied.

    None while another process copies.
    """
    name = uncopied.dead_letter_queue.queue
    await execute(
        connection,
        DEAD_LETTER_QUEUES["begin_copying"],
        consumer=uncopied.consumer_key,
        dead_letter_queue=name,
        popped=popped,
    )
    row = await fetch_one(connection, DEAD_LETTER_QUEUES["lock_copying"], consumer=uncopied.consumer_key)
    return None if row is None else int(row["copied_to"])


async def _next_deaths(connection: Connection, uncopied: UncopiedDeaths, *, after: int) -> list[DeadLetter]:
    rows = await fetch(
        connection, DEAD_LETTERS["next_deaths"], consumer=uncopied.consumer_key, after=after, limit=BATCH
    )
    return [letter_of(row) for row in rows]
