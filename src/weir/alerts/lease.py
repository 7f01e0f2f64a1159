"""One evaluator at a time: a lease with a fencing token.

A holder that slept past its lease and wakes up still believes in it; the token says otherwise. Every
write happens in a transaction that first locks the lease under its token, so a stale holder changes
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weir.control.database import Connection, Database, execute, fetch_one
from weir.control.sql import load_queries
from weir.errors import Conflict
from weir.model.ids import new_id

SQL = load_queries("weir.alerts", "lease.sql")
NAME = "evaluator"


class Deposed(Conflict):
    """Another evaluator took over; what this one was about to write is void."""

    code = "deposed"
    title = "Deposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """The right to evaluate, under one token."""

    token: int


class EvaluatorLease:
    """The lease as one process sees it; `holder` tells processes apart."""

    def __init__(self, database: Database, *, holder: str | None = None, ttl_ms: int = 90_000) -> None:
        self._database = database
        self._holder = holder or new_id()
        self._ttl_ms = ttl_ms

    async def take(self, *, now_ms: int) -> Term | None:
        """The right to evaluate now, or None while another holds it."""
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
    """Make sure, for the rest of this transaction, that the term still holds."""
    if await fetch_one(connection, SQL["fence"], name=NAME, token=term.token) is None:
        raise Deposed("another evaluator took over; nothing was written")


async def note_evaluation(connection: Connection, term: Term, *, now_ms: int, took_ms: int) -> None:
    await execute(
        connection, SQL["note_evaluation"], name=NAME, token=term.token, now_ms=now_ms, took_ms=took_ms
    )


async def show_lease(database: Database) -> dict[str, Any] | None:
    """Who evaluates now; None before the first evaluation."""
    return await database.fetch_one(SQL["show_lease"], name=NAME)
