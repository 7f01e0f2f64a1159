"""The lease of the evaluator, with a fencing token: one process evaluates at a time.

A process that slept past its lease still believes that it has it. So every write happens in a transaction
that first locks the lease under the token of its term. The token of a stale holder is outdated, so it writes
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weir.control.database import Connection, Database, execute, fetch_one
from weir.control.sql import load_queries
from weir.errors import Conflict
from weir.model.durations import SECOND_MS
from weir.model.ids import new_id

SQL = load_queries("weir.alerts", "lease.sql")
NAME = "evaluator"
INTERVAL_MS = 30 * SECOND_MS
# Two evaluations may be missed: a slow one neither hands the lease to another process nor ends a calm span.
LASTING_INTERVALS = 3


class Deposed(Conflict):
    """Another evaluator took over; this one must not write its results."""

    code = "deposed"
    title = "Deposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """The right to evaluate, under one token."""

    token: int


class EvaluatorLease:
    """Takes and releases the lease for one process, which `holder` names."""

    def __init__(
        self, database: Database, *, holder: str | None = None, ttl_ms: int = LASTING_INTERVALS * INTERVAL_MS
    ) -> None:
        self._database = database
        self._holder = holder or new_id()
        self._ttl_ms = ttl_ms

    async def take(self, *, now_ms: int) -> Term | None:
        """Take or renew the lease; None while another process holds it."""
        row = await self._database.fetch_one(
            SQL["take_lease"],
            name=NAME,
            holder=self._holder,
            now_ms=now_ms,
            expires_at_ms=now_ms + self._ttl_ms,
        )
        return None if row is None else Term(token=row["token"])

    async def release(self, term: Term) -> None:
        await self._database.execute(SQL["release_lease"], name=NAME, token=term.token)


async def fence(connection: Connection, term: Term) -> None:
    """Lock the lease for the rest of this transaction; Deposed if the term has ended."""
    if await fetch_one(connection, SQL["fence"], name=NAME, token=term.token) is None:
        raise Deposed("another evaluator took over; nothing was written")


async def note_evaluation(connection: Connection, term: Term, *, now_ms: int, took_ms: int) -> None:
    await execute(
        connection, SQL["note_evaluation"], name=NAME, token=term.token, now_ms=now_ms, took_ms=took_ms
    )


async def show_lease(database: Database) -> dict[str, Any] | None:
    """The lease and its holder; None before the first evaluation."""
    return await database.fetch_one(SQL["show_lease"], name=NAME)
