"""Whose queue it is: each has one consumer, a channel's or an implicit one, and a row of the summary."""

from __future__ import annotations

from collections.abc import Iterable

from weir.control.database import Connection, Database, execute, fetch
from weir.control.queue_definitions import queue_names
from weir.control.scopes import scope_names
from weir.control.sql import load_queries
from weir.model.names import EnvironmentRef, QueueRef

SQL = load_queries("weir.deadletters", "consumers.sql")
Keys = dict[QueueRef, int]


async def ensure_consumers(connection: Connection, queues: Iterable[QueueRef], *, now_ms: int) -> Keys:
    """The keys of the queues' consumers; a queue that is new gets its implicit one and a count of zero."""
    wanted = sorted(set(queues))
    columns = _columns(wanted)
    found = _keys(await fetch(connection, SQL["find_consumers"], **columns))
    new = [queue for queue in wanted if queue not in found]
    if new:
        await execute(connection, SQL["add_consumers"], now_ms=now_ms, **_columns(new))
        found = _keys(await fetch(connection, SQL["find_consumers"], **columns))
        fresh = [found[queue] for queue in new]
        await execute(connection, SQL["add_summaries"], keys=sorted(fresh), now_ms=now_ms)
    return found


async def consumer_key(database: Database, queue: QueueRef) -> int | None:
    """The key of one queue's consumer; None if nothing of that queue was ever seen."""
    row = await database.fetch_one(SQL["find_consumer"], **queue_names(queue))
    return None if row is None else int(row["consumer_key"])


async def consumer_keys(database: Database, environment: EnvironmentRef) -> list[int]:
    """The keys of all consumers of an environment."""
    rows = await database.fetch(SQL["consumers_of"], **scope_names(environment))
    return [row["consumer_key"] for row in rows]


def _columns(queues: list[QueueRef]) -> dict[str, list[str]]:
    return {
        "organizations": [queue.organization for queue in queues],
        "projects": [queue.project for queue in queues],
        "environments": [queue.environment for queue in queues],
        "queues": [queue.queue for queue in queues],
    }


def _keys(rows: list[dict[str, object]]) -> Keys:
    return {
        QueueRef(
            organization=str(row["organization"]),
            project=str(row["project"]),
            environment=str(row["environment"]),
            queue=str(row["queue"]),
        ): int(str(row["consumer_key"]))
        for row in rows
    }
