"""The exact numbers of dead letters: they change in the transaction of every death, replay and purge.

Every transaction locks in the same order (letters, then groups by key, then the summary by key), each kind
once. So movers, redrives and purges never wait for each other in a circle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weir.control.database import Connection, Database, Row, execute, fetch
from weir.control.principals import Principal
from weir.control.scopes import principal_names
from weir.deadletters.queries import COUNTS


@dataclass(slots=True)
class DeadTally:
    """The numbers that one transaction adds to each consumer and group, or takes from them."""

    consumers: Counter[int] = field(default_factory=Counter)
    groups: Counter[int] = field(default_factory=Counter)


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
        await execute(connection, COUNTS["change_groups"], keys=list(groups), deltas=list(groups.values()))
    await change_summary(connection, tally.consumers, now_ms=now_ms)


async def count_gone(connection: Connection, rows: Sequence[Row], *, now_ms: int) -> int:
    """Subtract letters that are not dead any more; return how many.

    A row has a `consumer_key` and a `group_key`, and stands for one letter, or for as many as `letters` says.
    """
    tally = DeadTally()
    for row in rows:
        letters = row.get("letters", 1)
        tally.consumers[row["consumer_key"]] -= letters
        tally.groups[row["group_key"]] -= letters
    await apply_tally(connection, tally, now_ms=now_ms)
    return -tally.consumers.total()


async def change_summary(connection: Connection, deltas: Mapping[int, int], *, now_ms: int) -> None:
    """Change the consumers' counts. A missing row is counted from the letters, as the caller changed them."""
    wanted = _sorted(deltas)
    if not wanted:
        return
    missing = wanted.keys() - await _change(connection, wanted)
    if missing:
        made = await fetch(connection, COUNTS["count_missing"], keys=sorted(missing), now_ms=now_ms)
        late = missing - {row["consumer_key"] for row in made}
        await _change(connection, {key: wanted[key] for key in sorted(late)})


async def bootstrap(connection: Connection, *, now_ms: int) -> int:
    """Count every consumer that the summary lacks; return how many there were."""
    return len(await fetch(connection, COUNTS["count_missing"], keys=None, now_ms=now_ms))


async def read_summary(database: Database, principal: Principal) -> list[ConsumerStatus]:
    """Every queue inside a principal's scope: `GET /dlq-status` reads this and nothing else."""
    rows = await database.fetch(COUNTS["read_summary"], **principal_names(principal))
    return [ConsumerStatus(**row) for row in rows]


async def _change(connection: Connection, deltas: Mapping[int, int]) -> set[int]:
    if not deltas:
        return set()
    rows = await fetch(connection, COUNTS["change_summary"], keys=list(deltas), deltas=list(deltas.values()))
    return {row["consumer_key"] for row in rows}


def _sorted(deltas: Mapping[int, int]) -> dict[int, int]:
    return {key: deltas[key] for key in sorted(deltas) if deltas[key]}
