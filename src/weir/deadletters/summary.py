"""How many are dead, exactly: the summary and the groups' counts, changed with every death, replay and purge.

Locks are taken in one order by everyone (letters, groups by key, summary by key), once a transaction, so
movers, redrives and purges never wait for each other in a circle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weir.control.database import Connection, Database, Row, execute, fetch
from weir.control.principals import Principal
from weir.control.scopes import principal_names
from weir.control.sql import load_queries

SQL = load_queries("weir.deadletters", "summary.sql")


@dataclass(slots=True)
class DeadTally:
    """What one transaction adds to (or takes from) each consumer and group."""

    consumers: Counter[int] = field(default_factory=Counter)
    groups: Counter[int] = field(default_factory=Counter)

    def count(self, rows: Sequence[Row], *, by: int) -> None:
        """Count rows with a `consumer_key` and a `group_key`, each as `by`."""
        for row in rows:
            self.consumers[row["consumer_key"]] += by
            self.groups[row["group_key"]] += by


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatus:
    """One row of the summary."""

    organization: str
    project: str
    environment: str
    queue: str
    channel_id: str
    channel_name: str
    consumer_id: str
    consumer_name: str
    dead_count: int
    last_checked_at_ms: int


async def apply_tally(connection: Connection, tally: DeadTally, *, now_ms: int) -> None:
    """Change the counts of groups and consumers inside the caller's transaction."""
    groups = _sorted(tally.groups)
    if groups:
        await execute(connection, SQL["change_groups"], keys=list(groups), deltas=list(groups.values()))
    await change_summary(connection, tally.consumers, now_ms=now_ms)


async def change_summary(connection: Connection, deltas: Mapping[int, int], *, now_ms: int) -> None:
    """Change the consumers' counts. A missing row is counted afresh, the caller's changes included."""
    wanted = _sorted(deltas)
    if not wanted:
        return
    missing = wanted.keys() - await _change(connection, wanted)
    if missing:
        made = await fetch(connection, SQL["count_missing"], keys=sorted(missing), now_ms=now_ms)
        late = missing - {row["consumer_key"] for row in made}
        await _change(connection, {key: wanted[key] for key in sorted(late)})


async def bootstrap(connection: Connection, *, now_ms: int) -> int:
    """Count every consumer that the summary lacks, once; how many there were."""
    return len(await fetch(connection, SQL["count_missing"], keys=None, now_ms=now_ms))


async def read_summary(database: Database, principal: Principal) -> list[ConsumerStatus]:
    """Every queue inside a principal's scope: `GET /dlq-status` reads this and nothing else."""
    rows = await database.fetch(SQL["read_summary"], **principal_names(principal))
    return [ConsumerStatus(**row) for row in rows]


async def _change(connection: Connection, deltas: Mapping[int, int]) -> set[int]:
    if not deltas:
        return set()
    rows = await fetch(connection, SQL["change_summary"], keys=list(deltas), deltas=list(deltas.values()))
    return {row["consumer_key"] for row in rows}


def _sorted(deltas: Mapping[int, int]) -> dict[int, int]:
    return {key: deltas[key] for key in sorted(deltas) if deltas[key]}
