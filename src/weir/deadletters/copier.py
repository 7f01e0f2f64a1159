"""Copies deaths, the oldest first, into the dead letter queues that have an action or are popped.

It is a loop of its own, so that the mover never waits for a queue that is full or out of reach. One number
per consumer says how far its deaths are copied. It is saved after the copies went out; a claim with a
deadline keeps other processes away meanwhile. If it is not saved, the same copies go out again under the
same ids and keys, and the queue drops them as duplicates. A queue whose copies fail is looked at later; the
others go on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from weir.broker.broker import Broker, GateRule
from weir.control.database import Database, Row, execute, fetch_one
from weir.control.scopes import scope_of
from weir.deadletters.copies import copy_id_of, copy_of
from weir.deadletters.dead_letter import DeadLetter, read_letters, within_bytes
from weir.deadletters.loops import repeat
from weir.deadletters.queries import DEAD_LETTER_QUEUES, DEAD_LETTERS
from weir.deadletters.replay import GONE_OUT
from weir.errors import ControlUnavailable, NotFound
from weir.lineage.children import ChildMessage, Kinship, record_children
from weir.model.ids import new_id
from weir.model.message import QueueState
from weir.model.names import QueueRef

log = structlog.get_logger(__name__)

IDLE_S = 1.0
MAX_BACKOFF_S = 10.0
LOOK_AGAIN_S = 2.0
"""How long to wait before the next look at a dead letter queue that nobody pops, or that is full."""
BATCH = 100
BATCH_BYTES = 2 << 20
"""Bytes of letters that a batch reads, unless the first letter alone has more."""
CLAIM_MS = 30_000
"""When another process may go on, if the one that copied does not say that it is done."""
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
            if self._look_at.get(uncopied.dead_letter_queue, 0.0) > time.monotonic():
                continue
            try:
                more = await self._copy(uncopied) or more
            except ControlUnavailable:
                raise
            except Exception as error:
                log.warning("copies of dead letters wait", queue=uncopied.queue.queue, error=str(error))
                self._look_later(uncopied)
        return more

    async def _copy(self, uncopied: UncopiedDeaths) -> bool:
        """Copy one batch; return whether there may be more now."""
        state = await self._state(uncopied.dead_letter_queue)
        if state is None or not (uncopied.receives or state.popped) or state.depth >= MAX_WAITING:
            return self._look_later(uncopied)
        claim = new_id()
        after = await self._claim(uncopied, claim, popped=state.popped)
        if after is None:
            return False
        letters: list[DeadLetter] = []
        sent = 0
        try:
            letters = await self._next_deaths(uncopied, after=after)
            sent = await self._send(uncopied.dead_letter_queue, letters)
        finally:
            await self._save(uncopied, claim, letters[:sent], after=after)
        if sent < len(letters):
            return self._look_later(uncopied)
        return sent > 0

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

    async def _claim(self, uncopied: UncopiedDeaths, claim: str, *, popped: bool) -> int | None:
        """Claim the copies of a consumer; return the last arrival that was copied, None while another copies.

        The claim is committed before anything is read or sent, and lapses if this process ends.
        """
        async with self._database.connection() as connection:
            await execute(
                connection,
                DEAD_LETTER_QUEUES["begin_copying"],
                consumer=uncopied.consumer_key,
                dead_letter_queue=uncopied.dead_letter_queue.queue,
                popped=popped,
            )
            row = await fetch_one(
                connection,
                DEAD_LETTER_QUEUES["claim_copying"],
                consumer=uncopied.consumer_key,
                claim=claim,
                claim_ms=CLAIM_MS,
            )
        return None if row is None else int(row["copied_to"])

    async def _next_deaths(self, uncopied: UncopiedDeaths, *, after: int) -> list[DeadLetter]:
        """The next letters by arrival, as many as fit into a batch: sizes first, then bodies."""
        rows = await self._database.fetch(
            DEAD_LETTERS["next_deaths"], consumer=uncopied.consumer_key, after=after, limit=BATCH
        )
        letters = await read_letters(self._database, within_bytes(rows, BATCH_BYTES))
        return sorted(letters, key=lambda letter: letter.seq)

    async def _save(
        self, uncopied: UncopiedDeaths, claim: str, sent: Sequence[DeadLetter], *, after: int
    ) -> None:
        """Write down what was sent, and end the claim.

        Copies that went out unsaved are duplicates next time.
        """
        async with self._database.transaction() as connection:
            if sent:
                await record_children(connection, _copies(uncopied.dead_letter_queue, sent))
            await execute(
                connection,
                DEAD_LETTER_QUEUES["save_copied"],
                consumer=uncopied.consumer_key,
                claim=claim,
                copied_to=sent[-1].seq if sent else after,
            )

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
