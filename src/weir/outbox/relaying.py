"""Moves messages from the outbox into their queues: in order, each once, whatever dies on the way.

The stripes of the outbox are divided into `PARTS`, and a part belongs to one relay at a time, by a lock of
its session. Within a part a batch goes out in the order of the positions. When the batch is answered, the
messages that are in their queues are deleted, and the next batch follows. If a relay dies in between, the
next relay pushes the batch again, under the same idempotency keys. If a request of the dead relay arrives
late, it carries the same messages in the same order, so it changes nothing.

A queue that refuses (it is full, or does not exist) is held for a while: it gets no messages, and other
queues go on. A message that can never be pushed is set aside with the reason.

A message that ends the process of its relay is found as well. A relay counts its start with a part before it
takes a message, and after a start too many it begins with small batches, in the end with a single message,
whose tries are counted. Each batch that went well lets it take twice as many.

The table is polled. A NOTIFY for each commit would make all commits of the database wait for one lock.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.rows import dict_row

from weir.client.core import AsyncWeir
from weir.control.sql import NamedQuery
from weir.model.backoff import Backoff
from weir.model.item_loops import storable_text
from weir.model.limits import MAX_BATCH
from weir.outbox.batch_push import BatchPush, Row
from weir.outbox.transactional_push import SQL

log = logging.getLogger("weir.outbox")

PARTS = 8
"""How many batches go out at once. The index and the queries, with `stripe & 7`, are made for this number."""
POLL_S = 0.05
TAKE_PARTS_EVERY_S = 1.0
"""How often a relay looks for parts of a relay that ended, and keeps its own."""
LEASE_S = 6.0
"""How long a part belongs to a relay that does not keep it: it was killed, or stands still."""
LEAVE_S = 1.0
"""How long a relay that ends may take to give up its parts."""
MAX_BYTES = 512 << 10
"""A batch takes messages until their payloads and headers have so many bytes. The API takes 1 MiB."""
ANSWER_S = 10.0
"""How long one statement may take."""
RECONNECT = Backoff(first_s=0.2, longest_s=10.0)
HOLD = Backoff(first_s=0.5, longest_s=30.0)
STARTS = 4
"""So many relays may begin with a part, and end before their first batch, until one takes smaller batches."""
TRIES = 5
"""How often a message goes out alone that ends its relay, or whose push fails as nobody foresaw."""
FULL_LOOK_S = 1.0
"""How often, at most, a relay looks through the messages of held queues. It may take 2 % of the time."""


async def relay(database: str, weir: AsyncWeir) -> None:
    """Relay messages until cancelled. While either side is out of reach, wait and try again.

    ```python
    async with AsyncWeir("http://127.0.0.1:8420", token="weir_…") as weir:
        await outbox.relay("postgresql://…", weir)
    ```

    Any number of relays may run. Each part of the outbox belongs to one of them, and the others take over its
    parts when it ends.
    """
    failures = 0
    while True:
        started_s = time.monotonic()
        try:
            async with _Session(database) as session:
                relay = _Relay(session, weir)
                try:
                    await relay.run()
                finally:
                    await relay.leave()
        except* (psycopg.Error, OSError, TimeoutError) as errors:
            failures = 1 if time.monotonic() - started_s > RECONNECT.longest_s else failures + 1
            log.warning("the database of the outbox fails: %s", _first_words(errors))
        await asyncio.sleep(RECONNECT.pause_s(failures))


def _first_words(errors: BaseExceptionGroup[BaseException]) -> str:
    """The text of the first error in a group."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    if isinstance(first, psycopg.errors.UndefinedTable):
        return "the outbox is not made, or older than this relay; run `weir outbox migrate`"
    return str(first).strip() or type(first).__name__


class PartsLost(OSError):
    """Another relay may have the parts of this one by now."""


class _Session:
    """One connection, with nothing that belongs to its session. Every wait for the server has a limit."""

    def __init__(self, database: str) -> None:
        self._database = database

    async def __aenter__(self) -> _Session:
        self._connection = await psycopg.AsyncConnection.connect(
            self._database,
            autocommit=True,
            row_factory=dict_row,
            connect_timeout=5,
            application_name="weir-outbox-relay",
            # A pooler gives each statement any of its sessions, and prepared statements have names there.
            prepare_threshold=None,
            # So a server that vanished is noticed even while no statement runs.
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        # Close without telling the server, which may hang.
        self._connection.pgconn.finish()
        with suppress(psycopg.Error):
            await self._connection.close()

    async def fetch(self, query: NamedQuery, **parameters: Any) -> list[Row]:
        async with asyncio.timeout(ANSWER_S):
            cursor = await self._connection.execute(query.text, parameters)
            return list(await cursor.fetchall()) if cursor.description else []


class _Part:
    """A part that this session has."""

    def __init__(self, number: int, *, starts: int) -> None:
        self.number = number
        self.has_messages = asyncio.Event()
        self.after = 0
        """Up to this position there are only messages of held queues."""
        self.limit = max(1, MAX_BATCH >> 3 * max(0, starts - STARTS))
        """How many messages a batch may have."""
        self.is_calm = False
        """Whether it is noted that this part does not end its relay."""

    def grow(self) -> bool:
        """A batch went well. Returns whether that has to be noted."""
        was_calm, self.is_calm = self.is_calm, self.limit >= MAX_BATCH
        self.limit = min(2 * self.limit, MAX_BATCH)
        return self.is_calm and not was_calm


class _Relay:
    """The work of one session."""

    def __init__(self, session: _Session, weir: AsyncWeir) -> None:
        self._session = session
        self._weir = weir
        self._holder = uuid4()
        self._kept_s = -math.inf
        """When the parts were kept last; they are this relay's for `LEASE_S` from then on."""
        self._parts: dict[int, _Part] = {}
        self._held = _HeldQueues()
        self._passed_over: set[str] = set()
        """The queues that were held when the positions `_Part.after` were found."""
        self._full_look_s = 0.0
        self._alone = asyncio.Lock()
        """Held while a message goes out alone: if the relay ends then, it was because of this message."""
        self._odd: Counter[str] = Counter()
        """How often the push of a message failed as nobody foresaw, by its id."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                for part in await self._take_parts():
                    self._parts[part.number] = part
                    tasks.create_task(self._serve(part))
                await self._keep_parts()
                until_s = time.monotonic() + TAKE_PARTS_EVERY_S
                while time.monotonic() < until_s:
                    await self._look()
                    await asyncio.sleep(POLL_S)

    async def _take_parts(self) -> list[_Part]:
        """Take the parts that no other relay has; returns the new ones."""
        taken = []
        for part in range(PARTS):
            if part not in self._parts:
                rows = await self._session.fetch(
                    SQL["take_part"], part=part, holder=self._holder, seconds=LEASE_S
                )
                taken += [_Part(part, starts=row["starts"]) for row in rows]
        return taken

    async def _keep_parts(self) -> None:
        began_s = time.monotonic()
        rows = await self._session.fetch(SQL["keep_parts"], holder=self._holder, seconds=LEASE_S)
        if not self._parts.keys() <= {row["part"] for row in rows}:
            raise PartsLost("another relay took over, because this one stood still")
        self._kept_s = began_s

    def _require_parts(self) -> None:
        """Raise if another relay may have taken the parts: what it pushes must not be passed by."""
        if time.monotonic() - self._kept_s > LEASE_S:
            raise PartsLost("this relay stood still for too long, and begins again")

    async def leave(self) -> None:
        """Give up the parts. If the database does not answer, they are free in a moment all the same."""
        with suppress(psycopg.Error, OSError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._session.fetch(SQL["leave_parts"], holder=self._holder)

    def _held_names(self) -> list[str]:
        """The queues that get nothing now. If one was let go, all messages are looked through again."""
        held = self._held.names()
        if not self._passed_over <= set(held) or not held:
            self._forget_positions()
        self._passed_over = set(held)
        return held

    def _forget_positions(self) -> None:
        for part in self._parts.values():
            part.after = 0
        self._full_look_s = 0.0

    async def _look(self) -> None:
        """Wake the parts that have messages.

        Messages of held queues are walked through only now and then, because there may be many. The others
        have later positions, except for a moment: positions are given before they can be seen.
        """
        held = self._held_names()
        began_s = time.monotonic()
        is_full = began_s >= self._full_look_s
        idle = [part for part in self._parts.values() if not part.has_messages.is_set()]
        if not idle:
            return
        rows = await self._session.fetch(
            SQL["parts_waiting"],
            parts=[part.number for part in idle],
            after=[0 if is_full else part.after for part in idle],
            held=held,
        )
        if is_full and held:
            now_s = time.monotonic()
            self._full_look_s = now_s + max(FULL_LOOK_S, 50 * (now_s - began_s))
        for row in rows:
            part = self._parts[row["part"]]
            if row["waiting"]:
                part.after = 0 if is_full else part.after
                part.has_messages.set()
            elif held and is_full:
                part.after = row["last"] or 0
        if not held:
            empty = [part for part in idle if not part.has_messages.is_set()]
            await self._note_calm([part for part in empty if not part.is_calm])

    async def _note_calm(self, parts: Sequence[_Part]) -> None:
        if parts:
            await self._session.fetch(SQL["calm_parts"], parts=[part.number for part in parts])
        for part in parts:
            part.is_calm, part.limit = True, MAX_BATCH

    async def _serve(self, part: _Part) -> None:
        while True:
            await part.has_messages.wait()
            if any(one.limit == 1 for one in self._parts.values()):
                async with self._alone:
                    more = await self._relay_batch(part)
            else:
                more = await self._relay_batch(part)
            if not more:
                part.has_messages.clear()

    async def _relay_batch(self, part: _Part) -> bool:
        """Relay the first messages of a part; returns whether there may be more now."""
        held = self._held_names()
        rows = await self._session.fetch(
            SQL["next_messages"],
            part=part.number,
            after=part.after,
            held=held,
            limit=part.limit,
            max_bytes=MAX_BYTES,
        )
        if not rows:
            return False
        if held:
            part.after = rows[0]["position"] - 1
        if part.limit == 1 and not await self._may_go_out(part, rows[0]):
            return True
        self._require_parts()
        push = BatchPush(self._weir)
        await push.push(rows)
        await self._store(push)
        if part.grow():
            await self._note_calm([part])
        return len(push.done) + len(push.never) == len(rows)

    async def _may_go_out(self, part: _Part, row: Row) -> bool:
        """Count the try of a message that goes out alone, or set it aside if it had all of its tries."""
        (counted,) = await self._session.fetch(SQL["count_try"], part=part.number, id=row["id"])
        if counted["tries"] <= TRIES:
            return True
        await self._fail(row, f"given up after {TRIES} tries: the relay that pushed it ended each time")
        return False

    async def _store(self, push: BatchPush) -> None:
        for queue, problem in push.waiting.items():
            pause_s = self._held.hold(queue)
            if pause_s is not None:
                log.warning("messages for `%s` wait for %.1f s: %s", queue, pause_s, problem)
        for queue in push.accepting:
            self._held.release(queue)
        if push.done:
            await self._session.fetch(SQL["remove"], ids=push.done)
        for row, problem in push.never:
            await self._fail(row, problem)
        for row, problem in push.odd:
            self._odd[str(row["id"])] += 1
            if self._odd[str(row["id"])] >= TRIES:
                del self._odd[str(row["id"])]
                await self._fail(row, f"given up after {TRIES} tries: {problem}")

    async def _fail(self, row: Row, problem: str) -> None:
        log.error("the message `%s` for `%s` can never be pushed: %s", row["id"], row["queue"], problem)
        await self._session.fetch(SQL["fail"], id=row["id"], problem=storable_text(problem)[:2_000])


class _HeldQueues:
    """Queues that get no messages for a while. The pause of a queue grows with each failure."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    def hold(self, queue: str) -> float | None:
        """Hold a queue; returns for how long, or None if it is held already."""
        now_s = time.monotonic()
        if self._until_s.get(queue, 0.0) > now_s:
            return None
        self._failures[queue] = self._failures.get(queue, 0) + 1
        pause_s = HOLD.pause_s(self._failures[queue])
        self._until_s[queue] = now_s + pause_s
        return pause_s

    def release(self, queue: str) -> None:
        """Forget the failures of a queue that takes messages. A pause that began lasts to its end."""
        self._failures.pop(queue, None)

    def names(self) -> list[str]:
        now_s = time.monotonic()
        self._until_s = {queue: until_s for queue, until_s in self._until_s.items() if until_s > now_s}
        return list(self._until_s)
