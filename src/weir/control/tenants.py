"""The register of tenants: organizations, projects and environments. An admin creates them by naming them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from weir.control.database import Connection, Database, Row, execute, fetch
from weir.control.principals import Principal
from weir.control.scopes import principal_names, scope_names, scope_of
from weir.control.sql import load_queries
from weir.errors import NotFound
from weir.model.clock import Clock, SystemClock
from weir.model.names import EnvironmentRef, check_tenant

SQL = load_queries("weir.control", "tenants.sql")
PAGE = 100
PAGE_S = 20.0
"""Rows that are handed to the broker at once at the start, and how long that may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """An environment as the control store knows it."""

    ref: EnvironmentRef
    concurrency: int | None
    created_at_ms: int


class Tenants:
    """The register of tenants in PostgreSQL."""

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def ensure(self, environment: EnvironmentRef) -> None:
        """Create the environment, and the project and organization around it, unless they exist."""
        async with self._database.transaction() as connection:
            await ensure_environment(connection, environment, now_ms=self._clock.now_ms())

    async def limit(self, environment: EnvironmentRef, concurrency: int | None) -> None:
        """Store how many messages of the environment may be leased at once."""
        touched = await self._database.execute(
            SQL["limit_environment"], concurrency=concurrency, by_spec=False, **scope_names(environment)
        )
        if not touched:
            raise NotFound(f"there is no environment `{environment.environment}`; create it first")

    async def visible_to(self, principal: Principal) -> list[Environment]:
        """The environments inside a principal's scope."""
        rows = await self._database.fetch(SQL["list_environments"], **principal_names(principal))
        return [_environment(row) for row in rows]

    async def everything(self) -> AsyncIterator[Environment]:
        """Every environment of every tenant, for start-up. The rows of a page are locked until the next one.

        So nobody changes a limit while the caller tells the broker what it was.
        """
        last = dict.fromkeys(("organization", "project", "environment"), "")
        while True:
            async with self._database.transaction(idle_s=PAGE_S) as connection:
                rows = await fetch(connection, SQL["some_environments"], limit=PAGE, **last)
                for row in rows:
                    yield _environment(row)
            if len(rows) < PAGE:
                return
            last = {name: rows[-1][name] for name in last}


async def ensure_environment(connection: Connection, environment: EnvironmentRef, *, now_ms: int) -> None:
    """Create an environment, its project and its organization inside the caller's transaction."""
    check_tenant(environment.organization)
    for query in ("ensure_organization", "ensure_project", "ensure_environment"):
        await execute(connection, SQL[query], now_ms=now_ms, **scope_names(environment))


def _environment(row: Row) -> Environment:
    return Environment(
        ref=scope_of(row),
        concurrency=row["concurrency"],
        created_at_ms=row["created_at_ms"],
    )
