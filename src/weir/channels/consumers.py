"""The consumer of each queue, of a channel or implicit. Dead letters are counted by the consumer's key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weir.control.database import Connection, Database, Row, execute, fetch
from weir.control.queue_definitions import queue_names
from weir.control.scopes import scope_names, scope_of
from weir.control.sql import load_queries
from weir.model.names import EnvironmentRef, QueueRef

SQL = load_queries("weir.channels", "consumers.sql")
ConsumerKeys = dict[QueueRef, int]


async def ensure_consumers(
    connection: Connection, queues: Iterable[QueueRef], *, now_ms: int
) -> ConsumerKeys:
    """The keys of the queues' consumers. A new queue gets an implicit consumer and a count of zero."""
    # Sorted, so that two transactions that add the same queues never deadlock.
    wanted = sorted(set(queues))
    found = await _find(connection, wanted)
    new = [queue for queue in wanted if queue not in found]
    if new:
        await execute(connection, SQL["add_consumers"], now_ms=now_ms, **_columns(new))
        found = await _find(connection, wanted)
        await execute(
            connection, SQL["add_summaries"], keys=sorted(found[queue] for queue in new), now_ms=now_ms
        )
    return found


async def consumer_key(database: Database, queue: QueueRef) -> int | None:
    """The key of one queue's consumer; None if nothing of that queue was ever seen."""
    row = await database.fetch_one(SQL["find_consumer"], **queue_names(queue))
    return None if row is None else int(row["consumer_key"])


async def consumer_keys(database: Database, environment: EnvironmentRef) -> list[int]:
    """The keys of all consumers of an environment."""
    rows = await database.fetch(SQL["consumers_of"], **scope_names(environment))
    return [row["consumer_key"] for row in rows]


async def _find(connection: Connection, queues: Sequence[QueueRef]) -> ConsumerKeys:
    rows: list[Row] = await fetch(connection, SQL["find_consumers"], **_columns(queues))
    return {scope_of(row).queue(row["queue"]): row["consumer_key"] for row in rows}


def _columns(queues: Sequence[QueueRef]) -> dict[str, list[str]]:
    return {
        "organizations": [queue.organization for queue in queues],
        "projects": [queue.project for queue in queues],
        "environments": [queue.environment for queue in queues],
        "queues": [queue.queue for queue in queues],
    }
