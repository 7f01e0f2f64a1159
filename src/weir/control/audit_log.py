"""The audit log: who changed what, with one record per change that somebody asked for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from psycopg.types.json import Jsonb

from weir.control.database import Connection, Database, execute
from weir.control.principals import Principal
from weir.control.scopes import principal_names
from weir.control.sql import load_queries
from weir.model.clock import Clock, SystemClock
from weir.model.ids import new_id
from weir.model.names import EnvironmentRef

SQL = load_queries("weir.control", "audit_log.sql")
# Longer than a plain statement needs: a change may wait for the lock of another change to the same thing.
_CHANGE_S = 3.0
# Redis is told before the commit, and a large spec defines thousands of queues there.
_ELSEWHERE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedChange:
    """One action on one target by one actor. The actor is a token id or a command."""

    actor: str
    action: str
    target: str
    organization: str | None
    project: str | None = None
    environment: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def inside(
        cls, scope: EnvironmentRef, *, actor: str, action: str, target: str, **details: Any
    ) -> AuditedChange:
        """A change to something of one environment."""
        return cls(
            actor=actor,
            action=action,
            target=target,
            organization=scope.organization,
            project=scope.project,
            environment=scope.environment,
            details=details,
        )


class AuditLog:
    """The audit log in PostgreSQL. Rows are only ever added."""

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    def together(self) -> AbstractAsyncContextManager[None]:
        """Make the changes of the block and their records one transaction: all of it happens, or nothing."""
        return self._database.together(answer_s=_CHANGE_S, idle_s=_ELSEWHERE_S)

    async def record(self, change: AuditedChange) -> None:
        async with self._database.connection() as connection:
            await record(connection, change, at_ms=self._clock.now_ms())

    async def newest(
        self, principal: Principal, *, limit: int = 100, before: str | None = None
    ) -> list[dict[str, Any]]:
        """The newest changes inside a principal's scope."""
        return await self._database.fetch(
            SQL["list_audit"],
            **principal_names(principal),
            before=before,
            limit=limit,
        )


async def record(connection: Connection, change: AuditedChange, *, at_ms: int) -> None:
    """Record a change inside the caller's transaction."""
    await execute(
        connection,
        SQL["record_audit"],
        id=new_id(),
        organization=change.organization,
        project=change.project,
        environment=change.environment,
        actor=change.actor,
        action=change.action,
        target=change.target,
        details=Jsonb(dict(change.details)),
        at_ms=at_ms,
    )
