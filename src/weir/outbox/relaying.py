"""Moves messages from the outbox into their queues: in order, each once, whatever dies on the way.

The stripes of the outbox are divided into `PARTS`, and a part belongs to one relay at a time, by a lock of
its session. Within a part a batch goes out in the order of the positions. When the batch is answered, the
messages that are in their queues are deleted, and the next batch follows. If a relay dies in between, the
next relay pushes the batch again, under the same idempotency keys. If a request of the dead relay arrives
late, it carries the same messages in the same order, so it changes nothing.

A queue that refuses (it is full, or does not exist) is held for a while: it gets no messages, and other
queues go on.

The table is polled. A NOTIFY for each commit would make all commits of the database wait for one lock.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.rows import dict_row

from weir.client.core import AsyncWeir
from weir.client.errors import ApiError, ClientError
from weir.client.values import OutgoingMessage, PushResult
from weir.control.sql import NamedQuery
from weir.model.backoff import Backoff
from weir.model.limits import MAX_BATCH
from weir.outbox.transactional_push import SQL

log = logging.getLogger("weir.outbox")

Row = dict[str, Any]
PARTS = 8
"""How many batches go out at once. The index and the queries, with `stripe & 7`, are made for this number."""
POLL_S = 0.05
TAKE_PARTS_EVERY_S = 1.0
"""How often a relay looks for parts of a relay that ended."""
MAX_BYTES = 512 << 10
"""A batch takes messages until their payloads and headers have so many bytes. The API takes 1 MiB."""
ANSWER_S = 10.0
"""How long one statement may take."""
PUSH_S = 120.0
"""How long the push of a batch may take, with all its tries."""
RECONNECT = Backoff(first_s=0.2, longest_s=10.0)
HOLD = Backoff(first_s=0.5, longest_s=30.0)
_UNFIT = (400, 413, 422)
"""Statuses of a request that can never succeed as it is, because of one of its messages."""
_NEVER = frozenset({"key_reused", "invalid_input", "malformed", "too_large"})
"""Codes of problems that a message keeps, however often it is tried."""


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
                await _Relay(session, weir).run()
        except* (psycopg.Error, OSError, TimeoutError) as errors:
            failures = 1 if time.monotonic() - started_s > RECONNECT.longest_s else failures + 1
            log.warning("the database of the outbox fails: %s", _first_words(errors))
        await asyncio.sleep(RECONNECT.pause_s(failures))


def _first_words(errors: BaseExceptionGroup[BaseException]) -> str:
    """The text of the first error in a group."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return str(first).strip() or type(first).__name__


class _Session:
    """One connection, whose session holds the locks of the parts. Every wait for the server has a limit."""

    def __init__(self, database: str) -> None:
        self._database = database

    async def __aenter__(self) -> _Session:
        self._connection = await psycopg.AsyncConnection.connect(
            self._database,
            autocommit=True,
            row_factory=dict_row,
            connect_timeout=5,
            application_name="weir-outbox-relay",
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


class _Relay:
    """The work of one session."""

    def __init__(self, session: _Session, weir: AsyncWeir) -> None:
        self._session = session
        self._weir = weir
        self._parts: dict[int, asyncio.Event] = {}
        """The parts that this session has, each with an event that is set while it has messages."""
        self._held = _HeldQueues()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                for part in await self._take_parts():
                    self._parts[part] = asyncio.Event()
                    tasks.create_task(self._serve(part))
                until_s = time.monotonic() + TAKE_PARTS_EVERY_S
                while time.monotonic() < until_s:
                    await self._look()
                    await asyncio.sleep(POLL_S)

    async def _take_parts(self) -> list[int]:
        """Take the parts that no other relay has; returns the new ones."""
        taken = []
        for part in range(PARTS):
            if part not in self._parts:
                (row,) = await self._session.fetch(SQL["take_part"], part=part)
                taken += [part] if row["taken"] else []
        return taken

    async def _look(self) -> None:
        """Wake the parts that have messages."""
        idle = [part for part, event in self._parts.items() if not event.is_set()]
        if idle:
            held = self._held.names()
            for row in await self._session.fetch(SQL["parts_waiting"], parts=idle, held=held):
                self._parts[row["part"]].set()

    async def _serve(self, part: int) -> None:
        while True:
            await self._parts[part].wait()
            if not await self._relay_batch(part):
                self._parts[part].clear()

    async def _relay_batch(self, part: int) -> bool:
        """Relay the first messages of a part; returns whether there may be more now."""
        rows = await self._session.fetch(
            SQL["next_messages"], part=part, held=self._held.names(), limit=MAX_BATCH, max_bytes=MAX_BYTES
        )
        if not rows:
            return False
        done = await self._push(rows)
        if done:
            await self._session.fetch(SQL["remove"], ids=done)
        return len(done) == len(rows)

    async def _push(self, rows: Sequence[Row]) -> list[str]:
        """Push messages; returns the ids of the messages that are in their queues."""
        try:
            async with asyncio.timeout(PUSH_S):
                results = await self._weir.push_many([_message(row) for row in rows])
        except ApiError as error:
            if error.status in _UNFIT:
                return await self._push_apart(rows, error)
            self._hold(rows, str(error))
            return []
        except (ClientError, TimeoutError) as error:
            self._hold(rows, str(error) or "no answer in time")
            return []
        return await self._sort(rows, results)

    async def _push_apart(self, rows: Sequence[Row], error: ApiError) -> list[str]:
        """Push the two halves, to find the message that made the API refuse all of them."""
        if len(rows) == 1:
            await self._fail(rows[0], str(error))
            return []
        middle = len(rows) // 2
        first = await self._push(rows[:middle])
        # If a message of the first half must wait, no later message of its queue may go out.
        names = self._held.names()
        return first + await self._push([row for row in rows[middle:] if row["queue"] not in names])

    async def _sort(self, rows: Sequence[Row], results: Sequence[PushResult]) -> list[str]:
        done = []
        for row, result in zip(rows, results, strict=True):
            problem = result.problem or {}
            if result.accepted:
                self._held.release(row["queue"])
                done.append(str(row["id"]))
            elif problem.get("code") in _NEVER:
                await self._fail(row, str(problem.get("detail")))
            else:
                self._hold([row], str(problem.get("detail")))
        return done

    async def _fail(self, row: Row, problem: str) -> None:
        log.error("the message `%s` for `%s` can never be pushed: %s", row["id"], row["queue"], problem)
        await self._session.fetch(SQL["fail"], id=row["id"], problem=problem[:2_000])

    def _hold(self, rows: Sequence[Row], problem: str) -> None:
        for queue in {row["queue"] for row in rows}:
            pause_s = self._held.hold(queue)
            if pause_s is not None:
                log.warning("messages for `%s` wait for %.1f s: %s", queue, pause_s, problem)


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


def _message(row: Row) -> OutgoingMessage:
    payload = bytes(row["payload"])
    return OutgoingMessage(
        queue=row["queue"],
        payload=json.loads(payload) if row["is_json"] else payload,
        key=row["key"],
        headers=json.loads(row["headers"]) if row["headers"] else {},
        priority=row["priority"],
        delay=None if row["delay_ms"] is None else row["delay_ms"] / 1_000,
        idempotency_key=row["idempotency_key"] or f"outbox:{row['id']}",
    )
