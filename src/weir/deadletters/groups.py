"""Groups of errors that look alike: one row per consumer and fingerprint, updated with every death.

The list reads only these rows, so it takes as long for 23 million letters as for 23.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weir.control.arrays import array_literal
from weir.control.database import Connection, Database, Row, execute, fetch
from weir.control.scopes import scope_names
from weir.deadletters.fingerprint import Fingerprint
from weir.deadletters.queries import COUNTS
from weir.model.names import EnvironmentRef

MAX_GROUPS = 10_000
"""Groups per consumer. Errors that all differ must not fill the table; `OTHER` takes the errors beyond."""
OTHER = Fingerprint(value="other", template="(more kinds of errors than are kept apart)")

GroupKeys = dict[tuple[int, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The part of a death that its group needs."""

    message_id: str
    consumer_key: int
    fingerprint: Fingerprint
    error: str
    died_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Errors that look alike, over the queues of one environment."""

    fingerprint: str
    template: str
    dead_count: int
    total_count: int
    first_seen_ms: int
    last_seen_ms: int
    rate_per_h: float
    queues: tuple[str, ...]
    sample_id: str
    sample_error: str


async def ensure_groups(connection: Connection, deaths: Sequence[Death]) -> GroupKeys:
    """The keys of the deaths' groups, by consumer and fingerprint; adds new ones up to a limit."""
    samples = {(death.consumer_key, death.fingerprint.value): death for death in reversed(deaths)}
    keys = await _find(connection, list(samples))
    new = {pair: samples[pair] for pair in sorted(samples) if pair not in keys}
    if not new:
        return keys
    full = await _full_consumers(connection, {consumer for consumer, _ in new})
    allowed = [death for (consumer, _), death in new.items() if consumer not in full]
    others = {(consumer, OTHER.value): death for (consumer, _), death in new.items() if consumer in full}
    await _add(connection, allowed, others)
    keys = await _find(connection, [*samples, *others])
    for consumer, value in samples:
        keys.setdefault((consumer, value), keys.get((consumer, OTHER.value), 0))
    return keys


async def grow_groups(connection: Connection, deaths: Sequence[Death], keys: Sequence[int]) -> None:
    """Count deaths in their groups, inside the caller's transaction."""
    if not deaths:
        return
    counts: dict[int, tuple[int, int, int]] = {}
    for death, key in zip(deaths, keys, strict=True):
        count, first, last = counts.get(key, (0, death.died_at_ms, death.died_at_ms))
        counts[key] = (count + 1, min(first, death.died_at_ms), max(last, death.died_at_ms))
    ordered = sorted(counts)
    await execute(
        connection,
        COUNTS["grow_groups"],
        keys=ordered,
        deaths=[counts[key][0] for key in ordered],
        firsts=[counts[key][1] for key in ordered],
        lasts=[counts[key][2] for key in ordered],
    )


async def list_groups(
    database: Database,
    environment: EnvironmentRef,
    *,
    now_ms: int,
    queue: str | None = None,
    limit: int = 100,
) -> list[Group]:
    """The groups of an environment or of one of its queues that hold dead letters, the largest first."""
    rows = await database.fetch(
        COUNTS["list_groups"], queue=queue, limit=limit, now_ms=now_ms, **scope_names(environment)
    )
    return [_group(row) for row in rows]


async def group_keys(database: Database, environment: EnvironmentRef, fingerprint: str) -> dict[int, int]:
    """The groups of one fingerprint in an environment, by consumer."""
    rows = await database.fetch(COUNTS["group_keys"], fingerprint=fingerprint, **scope_names(environment))
    return {row["consumer_key"]: row["group_key"] for row in rows}


async def _find(connection: Connection, pairs: Sequence[tuple[int, str]]) -> GroupKeys:
    rows = await fetch(
        connection,
        COUNTS["find_groups"],
        consumers=[consumer for consumer, _ in pairs],
        fingerprints=[value for _, value in pairs],
    )
    return {(row["consumer_key"], row["fingerprint"]): row["group_key"] for row in rows}


async def _full_consumers(connection: Connection, consumers: set[int]) -> set[int]:
    rows = await fetch(connection, COUNTS["full_consumers"], consumers=sorted(consumers), limit=MAX_GROUPS)
    return {row["consumer_key"] for row in rows}


async def _add(
    connection: Connection, deaths: Sequence[Death], others: Mapping[tuple[int, str], Death]
) -> None:
    labels = [death.fingerprint for death in deaths] + [OTHER] * len(others)
    everyone = [*deaths, *others.values()]
    await execute(
        connection,
        COUNTS["add_groups"],
        consumers=[death.consumer_key for death in everyone],
        fingerprints=[label.value for label in labels],
        templates=array_literal([label.template for label in labels]),
        samples=[death.message_id for death in everyone],
        errors=array_literal([death.error for death in everyone]),
        times=[death.died_at_ms for death in everyone],
    )


def _group(row: Row) -> Group:
    return Group(
        fingerprint=row["fingerprint"],
        template=row["template"],
        dead_count=int(row["dead_count"]),
        total_count=int(row["total_count"]),
        first_seen_ms=row["first_seen_ms"],
        last_seen_ms=row["last_seen_ms"],
        # Heat halves every hour, so at a steady rate it settles at rate / ln 2.
        rate_per_h=round(row["heat"] * math.log(2), 2),
        queues=tuple(row["queues"]),
        sample_id=str(row["sample_id"]),
        sample_error=row["sample_error"],
    )
