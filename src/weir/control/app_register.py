"""The register of apps: each declares its queues and schedules from its code, and owns them by name.

A queue that an app does not declare any more stays, and belongs to nobody: a worker that starts with other
code must not delete messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from weir.control.changes import Change
from weir.control.database import Connection, Database, execute
from weir.control.queue_definitions import define_stored
from weir.control.scopes import scope_names
from weir.control.spec_plans import Prepared, SpecText, keep, prepare_app
from weir.control.spec_register import Record, SpecRegister
from weir.control.sql import load_queries
from weir.model.clock import Clock, SystemClock
from weir.model.names import EnvironmentRef
from weir.spec.ir import AppSpec
from weir.spec.plan import Plan

SQL = load_queries("weir.control", "declared_apps.sql")

ScheduleFollower = Callable[[Connection, EnvironmentRef, AppSpec], Awaitable[None]]
"""Makes the schedules of an app match its declaration, in the same transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredApp:
    """An app as it declared itself last; `spec` is JSON."""

    name: str
    spec: str
    actor: str
    declared_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The result of declaring an app."""

    plan: Any
    """The plan, as it was asked for."""
    changes: bool
    """Whether anything changed."""
    told: bool
    """Whether the broker knows the queues already."""


class AppRegister:
    """Plans and declares apps."""

    def __init__(
        self,
        database: Database,
        specs: SpecRegister,
        *,
        follow_schedules: ScheduleFollower,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._specs = specs
        self._follow_schedules = follow_schedules
        self._clock = clock or SystemClock()

    async def of(self, environment: EnvironmentRef) -> list[DeclaredApp]:
        """The apps of an environment by name."""
        rows = await self._database.fetch(SQL["declared_apps"], **scope_names(environment))
        return [DeclaredApp(**row) for row in rows]

    async def plan(
        self, environment: EnvironmentRef, name: str, text: SpecText, *, show: Callable[[Plan], Any] = keep
    ) -> Any:
        """The changes that declaring an app would make, and the reasons to refuse them."""
        async with self._specs.at_work(environment):
            _, prepared = await self._prepare(environment, name, text, show)
        return prepared.shown

    async def declare(
        self,
        environment: EnvironmentRef,
        name: str,
        text: SpecText,
        *,
        actor: str,
        show: Callable[[Plan], Any] = keep,
        record: Record | None = None,
    ) -> Declared:
        """Make the queues and schedules of an app hold, all or none; Conflict if one is refused."""

        async def write(prepared: Prepared[Any], change: Change) -> None:
            await self._write(environment, prepared, change, actor=actor)
            if record is not None and prepared.changes:
                await record(prepared.name, change.revision)

        async with self._specs.at_work(environment):
            _, prepared = await self._prepare(environment, name, text, show)
            if prepared.refusals or prepared.changes or not prepared.same_text:
                prepared, _ = await self._specs.carry_out(
                    environment, lambda: self._prepare(environment, name, text, show), write
                )
        told = await self._specs.changes.tell(environment)
        return Declared(plan=prepared.shown, changes=prepared.changes, told=told)

    async def _prepare(
        self, environment: EnvironmentRef, name: str, text: SpecText, show: Callable[[Plan], Any]
    ) -> tuple[int, Prepared[Any]]:
        facts = await self._specs.facts(environment)
        return facts.revision, await self._specs.in_box(environment, prepare_app, text, facts, name, show)

    async def _write(
        self, environment: EnvironmentRef, prepared: Prepared[Any], change: Change, *, actor: str
    ) -> None:
        now_ms = self._clock.now_ms()
        await execute(
            change.connection,
            SQL["declare_app"],
            app=prepared.name,
            spec=prepared.document,
            actor=actor,
            now_ms=now_ms,
            **scope_names(environment),
        )
        await define_stored(
            change.connection, environment, prepared.queues, revision=change.revision, now_ms=now_ms
        )
        await self._follow_schedules(change.connection, environment, prepared.after)
