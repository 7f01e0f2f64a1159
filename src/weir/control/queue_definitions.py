"""Queue definitions in PostgreSQL, so that the promises of queues survive the loss of Redis."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weir.control.changes import begin_change, mark_untold
from weir.control.database import Connection, Database, Row, execute, fetch, fetch_one
from weir.control.scopes import scope_names, scope_of
from weir.control.spec_plans import in_use
from weir.control.sql import load_queries
from weir.control.stored_queues import read_stored_queue, stored_queue
from weir.control.tenants import PAGE, PAGE_S
from weir.errors import Conflict
from weir.model.clock import Clock, SystemClock
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.wording import amount
from weir.spec.ir import QueueSpec

SQL = load_queries("weir.control", "queue_definitions.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefinition:
    """A queue as the control store knows it."""

    queue: QueueRef
    spec: QueueSpec
    paused: bool
    defined_at_ms: int


class QueueDefinitions:
    """The register of queues. A caller that changes it tells the broker as well."""

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def define(self, queue: QueueRef, spec: QueueSpec) -> None:
        """Create or change a definition, and create its environment if needed."""
        now_ms = self._clock.now_ms()
        async with self._database.transaction() as connection:
            revision = await begin_change(connection, queue.scope, now_ms=now_ms)
            await define_queues(connection, queue.scope, [spec], revision=revision, now_ms=now_ms)

    async def pause(self, queue: QueueRef, *, paused: bool) -> bool:
        """Store whether the queue is paused; returns whether it is defined."""
        async with self._database.transaction() as connection:
            if not await execute(connection, SQL["pause_queue"], paused=paused, **queue_names(queue)):
                return False
            await mark_untold(connection, queue.scope, [queue.queue], pausing=True)
            return True

    async def forget(self, queue: QueueRef) -> None:
        async with self._database.transaction() as connection:
            await begin_change(connection, queue.scope, now_ms=self._clock.now_ms())
            await forget_queues(connection, queue.scope, [queue.queue])

    async def find(self, queue: QueueRef) -> QueueDefinition | None:
        async with self._database.connection() as connection:
            return await find_definition(connection, queue)

    async def defines(self, queue: QueueRef) -> bool:
        """Whether the queue is defined."""
        return await self.find(queue) is not None

    async def of(self, environment: EnvironmentRef) -> list[QueueDefinition]:
        """Every definition of an environment, by name."""
        rows = await self._database.fetch(SQL["list_queues"], **scope_names(environment))
        return await asyncio.to_thread(_read_all, rows)

    async def everything(self) -> AsyncIterator[QueueDefinition]:
        """Every definition of every tenant, for start-up. The rows of a page are locked until the next one.

        So nobody changes a queue while the caller tells the broker what it was.
        """
        last = dict.fromkeys(("organization", "project", "environment", "queue"), "")
        while True:
            async with self._database.transaction(idle_s=PAGE_S) as connection:
                rows = await fetch(connection, SQL["some_queues"], limit=PAGE, **last)
                for row in rows:
                    yield _definition(row)
            if len(rows) < PAGE:
                return
            last = {name: rows[-1][name] for name in last}

    async def check_unused(self, queue: QueueRef) -> None:
        """Conflict if something needs a queue."""
        async with self._database.connection() as connection:
            users = json.loads(await users_of(connection, queue.scope, queue=queue.queue))
        if users:
            raise Conflict(in_use(queue.queue, users[0]))

    async def check_unowned(self, queue: QueueRef) -> None:
        """Conflict if a spec or an app has the queue: only they change and remove it."""
        owner = await self._database.fetch_one(SQL["queue_owner"], **queue_names(queue))
        if owner is not None:
            change = (
                "change it there and apply the spec" if owner["kind"] == "spec" else "change it in its code"
            )
            raise Conflict(
                f"queue `{queue.queue}` belongs to the {owner['kind']} `{owner['name']}`; {change}",
                owner=owner,
            )

    async def check_undead(self, queue: QueueRef) -> None:
        """Conflict if the queue has dead letters."""
        row = await self._database.fetch_one(SQL["count_dead"], **queue_names(queue))
        dead = 0 if row is None else int(row["dead"])
        if dead:
            raise Conflict(
                f"queue `{queue.queue}` has {amount(dead, 'dead letter')}; redrive them first, or say with "
                "`dead_letters` what becomes of them: `keep` or `purge`",
                dead_letters=dead,
            )


async def find_definition(connection: Connection, queue: QueueRef) -> QueueDefinition | None:
    """The definition of a queue, read inside the caller's transaction."""
    row = await fetch_one(connection, SQL["find_queue"], **queue_names(queue))
    return None if row is None else _definition(row)


async def users_of(connection: Connection, environment: EnvironmentRef, *, queue: str | None = None) -> str:
    """Who uses a queue of an environment, or each of its queues: the JSON that `spec_plans` reads."""
    row = await fetch_one(connection, SQL["queue_users"], queue=queue, **scope_names(environment))
    return "[]" if row is None else str(row["users"])


async def define_queues(
    connection: Connection,
    environment: EnvironmentRef,
    specs: Iterable[QueueSpec],
    *,
    revision: int,
    now_ms: int,
) -> None:
    """Create or change definitions inside the caller's change."""
    documents = {spec.name: stored_queue(spec) for spec in specs}
    await define_stored(connection, environment, documents, revision=revision, now_ms=now_ms)


async def define_stored(
    connection: Connection,
    environment: EnvironmentRef,
    documents: Mapping[str, str],
    *,
    revision: int,
    now_ms: int,
) -> None:
    """Create or change definitions that are written as JSON already."""
    members = ", ".join(f"{json.dumps(name)}: {document}" for name, document in documents.items())
    await execute(
        connection,
        SQL["define_queues"],
        specs=f"{{{members}}}",
        revision=revision,
        now_ms=now_ms,
        **scope_names(environment),
    )
    await mark_untold(connection, environment, documents)


async def forget_queues(connection: Connection, environment: EnvironmentRef, queues: Sequence[str]) -> None:
    """Remove definitions inside the caller's change."""
    await execute(connection, SQL["forget_queues"], queues=list(queues), **scope_names(environment))
    await mark_untold(connection, environment, queues)


def queue_names(queue: QueueRef) -> dict[str, Any]:
    """The four names of a queue as query parameters."""
    return {**scope_names(queue.scope), "queue": queue.queue}


def _read_all(rows: list[Row]) -> list[QueueDefinition]:
    """Parse rows; called in a thread, because there may be thousands."""
    return [_definition(row) for row in rows]


def _definition(row: Row) -> QueueDefinition:
    return QueueDefinition(
        queue=scope_of(row).queue(row["queue"]),
        spec=read_stored_queue(row["spec"]),
        paused=row["paused"],
        defined_at_ms=row["defined_at_ms"],
    )
