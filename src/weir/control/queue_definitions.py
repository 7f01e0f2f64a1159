"""Queue definitions in PostgreSQL, so that the promises of queues survive the loss of Redis."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb
from pydantic import TypeAdapter

from weir.control.database import Connection, Database, Row, execute
from weir.control.scopes import scope_names, scope_of
from weir.control.sql import load_queries
from weir.control.tenants import ensure_environment
from weir.model.clock import Clock, SystemClock
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import QueueSpec

SQL = load_queries("weir.control", "queue_definitions.sql")
_SPEC = TypeAdapter(QueueSpec)


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
        async with self._database.transaction() as connection:
            await define_queue(connection, queue, spec, now_ms=self._clock.now_ms())

    async def pause(self, queue: QueueRef, *, paused: bool) -> None:
        """Store whether the queue is paused, for a restore; does nothing for a queue that is not defined."""
        await self._database.execute(SQL["pause_queue"], paused=paused, **queue_names(queue))

    async def forget(self, queue: QueueRef) -> None:
        await self._database.execute(SQL["forget_queue"], **queue_names(queue))

    async def find(self, queue: QueueRef) -> QueueDefinition | None:
        row = await self._database.fetch_one(SQL["find_queue"], **queue_names(queue))
        return None if row is None else _definition(row)

    async def defines(self, queue: QueueRef) -> bool:
        """Whether the queue is defined."""
        return await self.find(queue) is not None

    async def dying_into(self, queue: QueueRef) -> list[str]:
        """The queues whose dead letters belong to this one, by name."""
        rows = await self._database.fetch(SQL["dying_into"], **queue_names(queue))
        return [row["queue"] for row in rows]

    async def of(self, environment: EnvironmentRef) -> list[QueueDefinition]:
        """Every definition of an environment, by name."""
        rows = await self._database.fetch(SQL["list_queues"], **scope_names(environment))
        return await asyncio.to_thread(_read_all, rows)

    async def everything(self) -> list[QueueDefinition]:
        """Every definition of every tenant: for start-up, not for a request."""
        return await asyncio.to_thread(_read_all, await self._database.fetch(SQL["all_queues"]))


async def define_queue(connection: Connection, queue: QueueRef, spec: QueueSpec, *, now_ms: int) -> None:
    """Create or change a definition inside the caller's transaction."""
    await ensure_environment(connection, queue.scope, now_ms=now_ms)
    document = Jsonb(_SPEC.dump_python(spec, mode="json"))
    await execute(connection, SQL["define_queue"], spec=document, now_ms=now_ms, **queue_names(queue))


def queue_names(queue: QueueRef) -> dict[str, Any]:
    """The four names of a queue as query parameters."""
    return {**scope_names(queue.scope), "queue": queue.queue}


def _read_all(rows: list[Row]) -> list[QueueDefinition]:
    """Parse rows; called in a thread, because there may be thousands."""
    return [_definition(row) for row in rows]


def _definition(row: Row) -> QueueDefinition:
    return QueueDefinition(
        queue=scope_of(row).queue(row["queue"]),
        spec=_SPEC.validate_python(_renamed(row["spec"])),
        paused=row["paused"],
        defined_at_ms=row["defined_at_ms"],
    )


def _renamed(spec: dict[str, Any]) -> dict[str, Any]:
    """A stored spec with today's names.

    In older releases `priority` was `default_priority`, and a delivery's `secrets` were `secret_env` and
    `previous_secret_envs`.
    """
    if "default_priority" in spec:
        kept = {name: value for name, value in spec.items() if name != "default_priority"}
        spec = {"priority": spec["default_priority"], **kept}
    action = spec.get("action") or {}
    if action.get("secret_env"):
        secrets = [action["secret_env"], *action.get("previous_secret_envs", ())]
        spec = {**spec, "action": {"secrets": secrets, **action}}
    return spec
