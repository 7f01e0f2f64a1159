"""Carries the unmoved dead of each shard from Redis to PostgreSQL: in batches, once each, losing nothing.

One transaction stores the letters, their groups and the summary, and a checkpoint that names the batch.
Redis drops the batch only afterwards, so a crash loses nothing. After a crash the next mover first drops the
batch that the checkpoint names. So a letter that was purged before that does not come back.

Each batch is counted before it is read. If batches fail or end their process, they get smaller until the
letter is alone that does it. After `TRIES` it is stored without its headers and keys, in the end without its
payload, so that it does not keep the letters of others in Redis. Its error says so.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import structlog

from weir.broker.broker import Broker
from weir.channels.consumers import ConsumerKeys, ensure_consumers
from weir.control.arrays import array_literal
from weir.control.database import Connection, Database, execute, fetch, fetch_one
from weir.deadletters.copies import copied_from
from weir.deadletters.dead_letter import Position, envelope_of, storable
from weir.deadletters.failed_groups import tell_groups
from weir.deadletters.fingerprint import fingerprint
from weir.deadletters.groups import Death, GroupKeys, ensure_groups, grow_groups
from weir.deadletters.lineage import origin_of, parent_of, redrive_of, replayed_from
from weir.deadletters.locks import DeadLetterLock, try_lock
from weir.deadletters.loops import repeat
from weir.deadletters.queries import DEAD_LETTERS
from weir.deadletters.summary import change_summary
from weir.errors import ControlUnavailable, WeirError
from weir.model.backoff import Backoff
from weir.model.beside_loop import beside_loop
from weir.model.clock import Clock, SystemClock
from weir.model.ids import MessageId, new_id
from weir.model.limits import MAX_BATCH
from weir.model.message import DeadMessage

log = structlog.get_logger(__name__)

IDLE_S = 0.2
MAX_BACKOFF_S = 5.0
BACKOFF = Backoff(first_s=IDLE_S, longest_s=MAX_BACKOFF_S)
TRIES = 3
"""How often a letter is carried alone as it is, before it is stored without what may be wrong with it."""
_SHRINK = 2
"""A failed batch makes the next one smaller by so many powers of two, a stored one larger by as many."""
_ERROR_WEIGHT = 8
"""The fingerprint of an error of 4 KiB takes 1.5 ms: as long as eight times as much JSON, which
`beside_loop` counts in."""
MAX_KNOWN = 50_000
"""How many keys of consumers, and of groups, a mover keeps in memory. At the limit it keeps only the keys of
its newest batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How many messages a batch took from Redis, and how many of them were new in PostgreSQL."""

    taken: int
    stored: int


NOTHING = Moved(taken=0, stored=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDeaths:
    """Keys of consumers and groups that are committed: most batches need not ask PostgreSQL for them."""

    consumers: ConsumerKeys = field(default_factory=dict)
    groups: GroupKeys = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """How many letters were new, and the keys that may be kept once the transaction is committed."""

    letters: int
    known: KnownDeaths


class Mover:
    """Run one in every process; a lock lets one at a time work on a shard."""

    def __init__(
        self, broker: Broker, database: Database, *, clock: Clock | None = None, batch: int = MAX_BATCH
    ) -> None:
        self._broker = broker
        self._database = database
        self._clock = clock or SystemClock()
        self._batch = batch
        self._known = KnownDeaths()
        self._dropped: dict[int, UUID] = {}
        self._alone = next(one for one in range(32) if batch >> _SHRINK * one <= 1)
        """With so many failures a letter is carried alone."""
        self._failures: Counter[int] = Counter()
        self._wait_until_s: dict[int, float] = {}

    async def run(self) -> None:
        """Move for ever; while a store is out of reach, wait and try again."""
        await repeat(self.run_round, idle_s=IDLE_S, longest_s=MAX_BACKOFF_S, waits="dead letters in Redis")

    async def run_round(self) -> bool:
        """Move one batch of every shard; return whether there may be more."""
        more = False
        for shard in range(self._broker.shards):
            if self._wait_until_s.get(shard, 0.0) <= time.monotonic():
                more = await self._try(shard) or more
        return more

    async def _try(self, shard: int) -> bool:
        """Move one batch of a shard; return whether there may be more. A shard that fails waits alone."""
        try:
            # Asks Redis before it begins a transaction, so that an idle mover costs PostgreSQL nothing.
            dead = await self._broker.take_dead(shard, limit=1)
            moved = await self.move(shard) if dead else NOTHING
        except ControlUnavailable:
            raise
        except Exception as error:
            self._failures[shard] += 1
            pause_s = BACKOFF.pause_s(self._failures[shard])
            self._wait_until_s[shard] = time.monotonic() + pause_s
            shown = None if isinstance(error, WeirError) else error
            log.warning(
                "dead letters in Redis wait",
                shard=shard,
                error=str(error),
                retry_in_s=pause_s,
                exc_info=shown,
            )
            return False
        self._failures.pop(shard, None)
        return moved.taken > 0

    async def move(self, shard: int) -> Moved:
        """Carry one batch of a shard; do nothing while another mover works on it."""
        async with self._database.transaction() as connection:
            if not await try_lock(connection, DeadLetterLock.MOVER, shard):
                return NOTHING
            await self._finish_last(connection, shard)
            messages = await self._begin(shard)
            if not messages:
                return NOTHING
            now_ms = self._clock.now_ms()
            stored = await store_deaths(connection, messages, self._known, now_ms=now_ms)
            await tell_groups(self._broker, messages)
            ids = [message.message_id for message in messages]
            batch = await _save_batch(connection, shard, ids, now_ms=now_ms)
        self._known = stored.known
        await self._broker.drop_dead(shard, ids)
        self._dropped[shard] = batch
        return Moved(taken=len(messages), stored=stored.letters)

    async def _begin(self, shard: int) -> list[DeadMessage]:
        """Count a batch, then read it."""
        first = await self._broker.take_dead(shard, limit=1)
        if not first:
            return []
        # Not in the transaction of the move: what is counted must stay if the process ends.
        row = await self._database.fetch_one(
            DEAD_LETTERS["begin_batch"], shard=shard, first=first[0].message_id, alone=self._alone
        )
        failures, tries = (0, 0) if row is None else (row["failures"], row["tries"])
        limit = max(1, self._batch >> _SHRINK * failures)
        if limit > 1 or tries <= TRIES:
            return await self._broker.take_dead(shard, limit=limit)
        log.error("a dead letter cannot be stored as it is", id=first[0].message_id, tries=tries)
        return [_reduced(first[0], tries=tries)]

    async def _finish_last(self, connection: Connection, shard: int) -> None:
        """Drop the last batch that was stored for this shard, in case its mover was killed before it did."""
        row = await fetch_one(
            connection, DEAD_LETTERS["last_batch"], shard=shard, known=self._dropped.get(shard)
        )
        if row is not None:
            await self._broker.drop_dead(shard, [MessageId(str(one)) for one in row["message_ids"]])
            self._dropped[shard] = row["batch"]


def _reduced(message: DeadMessage, *, tries: int) -> DeadMessage:
    """A letter without what may keep it from being stored: headers and keys first, then the payload too."""
    bare = tries > 2 * TRIES
    left_out = "its headers, its keys and its payload" if bare else "its headers and its keys"
    return replace(
        message,
        headers={},
        key=None,
        idempotency_key=None,
        payload=b"" if bare else message.payload,
        error=f"stored without {left_out} after {tries} tries; its error was: {message.error[:1_000]}",
    )


async def _save_batch(connection: Connection, shard: int, ids: Sequence[MessageId], *, now_ms: int) -> UUID:
    batch = UUID(new_id())
    await execute(
        connection, DEAD_LETTERS["save_batch"], shard=shard, batch=batch, ids=list(ids), now_ms=now_ms
    )
    return batch


async def store_deaths(
    connection: Connection, messages: Sequence[DeadMessage], known: KnownDeaths, *, now_ms: int
) -> Stored:
    """Insert the deaths that are new and count them, in the caller's transaction.

    A copy that died in a dead letter queue is left out: its letter is stored and counted already. Rows are
    locked in the order of `summary`: letters, groups, summary.
    """
    messages = [one for one in messages if copied_from(one.message_id, one.headers) is None]
    if not messages:
        return Stored(letters=0, known=known)
    consumers = await _ensure_consumers(connection, messages, known.consumers, now_ms=now_ms)
    weight = _ERROR_WEIGHT * sum(len(message.error) for message in messages)
    deaths = await beside_loop(_deaths, weight, messages, consumers)
    groups = await _ensure_groups(connection, deaths, known.groups)
    keys = [groups[death.consumer_key, death.fingerprint.value] for death in deaths]
    new = await _insert(connection, messages, deaths, keys)
    await _mark_parents(connection, [messages[index] for index in new])
    await grow_groups(connection, [deaths[index] for index in new], [keys[index] for index in new])
    counts = Counter(deaths[index].consumer_key for index in new)
    await change_summary(connection, counts, now_ms=now_ms)
    await _count_redeaths(connection, [messages[index] for index in new])
    return Stored(letters=len(new), known=KnownDeaths(consumers=consumers, groups=groups))


async def _ensure_consumers(
    connection: Connection, messages: Sequence[DeadMessage], known: ConsumerKeys, *, now_ms: int
) -> ConsumerKeys:
    wanted = {message.queue for message in messages}
    if wanted <= known.keys():
        return known
    found = await ensure_consumers(connection, wanted, now_ms=now_ms)
    return {**known, **found} if len(known) < MAX_KNOWN else found


async def _ensure_groups(connection: Connection, deaths: Sequence[Death], known: GroupKeys) -> GroupKeys:
    wanted = {(death.consumer_key, death.fingerprint.value) for death in deaths}
    if wanted <= known.keys():
        return known
    found = await ensure_groups(connection, deaths)
    return {**known, **found} if len(known) < MAX_KNOWN else found


def _deaths(messages: Sequence[DeadMessage], consumers: ConsumerKeys) -> list[Death]:
    return [_death(message, consumers) for message in messages]


def _death(message: DeadMessage, consumers: ConsumerKeys) -> Death:
    return Death(
        message_id=message.message_id,
        consumer_key=consumers[message.queue],
        fingerprint=fingerprint(message.error, reason=message.reason),
        error=storable(message.error),
        died_at_ms=message.died_at_ms,
    )


async def _insert(
    connection: Connection, messages: Sequence[DeadMessage], deaths: Sequence[Death], keys: Sequence[int]
) -> list[int]:
    """Insert the letters; return the indexes of the letters that were not stored before."""
    parents = [parent_of(message.message_id, message.headers) for message in messages]
    origins = await _find_origins(connection, messages, parents)
    rows = await fetch(
        connection,
        DEAD_LETTERS["insert_letters"],
        ids=[message.message_id for message in messages],
        consumers=[death.consumer_key for death in deaths],
        groups=list(keys),
        enqueued=[message.enqueued_at_ms for message in messages],
        died=[message.died_at_ms for message in messages],
        attempts=[message.attempts for message in messages],
        max_attempts=[message.max_attempts for message in messages],
        reasons=array_literal([str(message.reason) for message in messages]),
        errors=array_literal([death.error for death in deaths]),
        payloads=[message.payload for message in messages],
        envelopes=array_literal([envelope_of(message) for message in messages]),
        parents=parents,
        origin_times=[None if origin is None else origin.enqueued_at_ms for origin in origins],
        origins=[None if origin is None else origin.id for origin in origins],
    )
    new = {str(row["id"]) for row in rows}
    return [index for index, message in enumerate(messages) if message.message_id in new]


async def _find_origins(
    connection: Connection, messages: Sequence[DeadMessage], parents: Sequence[str | None]
) -> list[Position | None]:
    """The first message of each replay's line; None for a message that is not a replay."""
    wanted = sorted({parent for parent in parents if parent is not None})
    known = await _read_origins(connection, wanted) if wanted else {}
    return [
        # If the parent was deleted since, the headers of the replay still name the origin.
        None if parent is None else known.get(parent) or origin_of(message.headers)
        for message, parent in zip(messages, parents, strict=True)
    ]


async def _read_origins(connection: Connection, dead_letter_ids: Sequence[str]) -> Mapping[str, Position]:
    rows = await fetch(connection, DEAD_LETTERS["origins_of"], ids=list(dead_letter_ids))
    return {
        str(row["id"]): Position(enqueued_at_ms=row["position_ms"], id=str(row["position_id"]))
        for row in rows
    }


async def _mark_parents(connection: Connection, messages: Sequence[DeadMessage]) -> None:
    """Mark the parents of these messages: their replays died."""
    parents = {parent_of(message.message_id, message.headers) for message in messages} - {None}
    if parents:
        await execute(
            connection, DEAD_LETTERS["mark_died_again"], ids=sorted(str(parent) for parent in parents)
        )


async def _count_redeaths(connection: Connection, messages: Sequence[DeadMessage]) -> None:
    redrives = [
        redrive_of(message.headers)
        for message in messages
        if parent_of(message.message_id, message.headers)
        or replayed_from(message.message_id, message.headers)
    ]
    deaths = Counter(one for one in redrives if one is not None)
    if deaths:
        query = DEAD_LETTERS["count_redeaths"]
        await execute(connection, query, actions=list(deaths), deaths=list(deaths.values()))
