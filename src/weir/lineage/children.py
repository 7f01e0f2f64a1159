"""Children of messages in PostgreSQL: written in batches when they are accepted; no message waits for that.

Only messages with a parent are recorded. A dead letter and its replay name each other anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from weir.control.arrays import array_literals
from weir.control.database import Connection, Database, execute
from weir.control.old_rows import cleaning, delete_old
from weir.control.scopes import scope_names
from weir.control.sql import load_queries
from weir.errors import ControlUnavailable
from weir.model.clock import Clock, SystemClock
from weir.model.durations import DAY_MS
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.write_buffer import WriteBuffer

SQL = load_queries("weir.lineage", "children.sql")
MAX_CHILDREN = 100
"""How many children of one message are shown."""
KEPT_MS = 7 * DAY_MS
FLUSH_S = 0.25
CAPACITY = 50_000
BATCH = 1_000
_COLUMNS = ("organization", "project", "environment", "parent_id", "child_id", "queue", "kind", "at_ms")


class Kinship(StrEnum):
    """How a message came from its parent."""

    CHAINED = "chained"
    """A handler of the parent pushed it, or its queue's `enqueue` did."""
    REDRIVEN = "redriven"
    COPIED = "copied"
    """It tells a dead letter queue of the parent's death."""
    REPLAYED = "replayed"
    """It was sent again from the log of the parent's queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildMessage:
    """A message that came from another of the same environment."""

    queue: QueueRef
    message_id: str
    parent_id: str
    kind: Kinship
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """A parent or a child of a message."""

    message_id: str
    kind: Kinship
    """How the younger one came from the older one."""
    queue: str | None = None
    at_ms: int | None = None
    """When the younger one was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The relatives of one message."""

    parent: Relative | None = None
    queue: str | None = None
    """The queue of the message, if its parent's row names it."""
    children: tuple[Relative, ...] = ()
    more_children: bool = False
    """Whether it has more than `MAX_CHILDREN`."""


NO_RELATIVES = Lineage()


class ChildRecorder(Protocol):
    """Records children."""

    def record(self, child: ChildMessage) -> None: ...


class PostgresChildren:
    """Collects children and writes them in batches. While PostgreSQL is away, the newest `CAPACITY` wait."""

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._buffer = WriteBuffer(self._write, capacity=CAPACITY, batch=BATCH, away=(ControlUnavailable,))

    def record(self, child: ChildMessage) -> None:
        self._buffer.add(child)

    async def flush(self) -> None:
        """Write the waiting records. If that fails they keep waiting."""
        await self._buffer.flush()

    async def run(self) -> None:
        """Flush and delete old rows until cancelled, and flush once more at the end."""
        async with cleaning(self.clean):
            await self._buffer.run(every_s=FLUSH_S)

    async def clean(self) -> None:
        """Delete old rows."""
        await delete_old(self._database, SQL["forget_children"], before_ms=self._clock.now_ms() - KEPT_MS)

    async def _write(self, batch: list[ChildMessage]) -> None:
        async with self._database.transaction() as connection:
            await record_children(connection, batch)


async def record_children(connection: Connection, children: Sequence[ChildMessage]) -> None:
    """Record children inside the caller's transaction."""
    rows = array_literals(_COLUMNS, (_row(child) for child in children))
    await execute(connection, SQL["record_children"], **rows)


async def lineage_of(database: Database, scope: EnvironmentRef, message_id: str) -> Lineage:
    """The recorded parent and children of a message."""
    about = {**scope_names(scope), "message_id": message_id}
    parent = await database.fetch_one(SQL["parent_of_message"], **about)
    children = await database.fetch(SQL["children_of_message"], limit=MAX_CHILDREN + 1, **about)
    return Lineage(
        # The row names the queue of the child, which is the message itself.
        parent=None
        if parent is None
        else Relative(message_id=parent["message_id"], kind=Kinship(parent["kind"]), at_ms=parent["at_ms"]),
        queue=None if parent is None else parent["queue"],
        children=tuple(_relative(row) for row in children[:MAX_CHILDREN]),
        more_children=len(children) > MAX_CHILDREN,
    )


def _relative(row: dict[str, Any]) -> Relative:
    return Relative(
        message_id=row["message_id"], kind=Kinship(row["kind"]), queue=row["queue"], at_ms=row["at_ms"]
    )


def _row(child: ChildMessage) -> tuple[Any, ...]:
    organization, project, environment, queue = child.queue.names
    return (
        organization,
        project,
        environment,
        child.parent_id,
        child.message_id,
        queue,
        child.kind.value,
        child.at_ms,
    )
