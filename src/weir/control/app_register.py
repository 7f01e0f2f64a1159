"""The register of apps: each declares its queues and schedules from its code, and owns them by name.

A queue that an app does not declare any more stays, and belongs to nobody: a worker that starts with other
code must not delete messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from psycopg.types.json import Json

from weir.control.database import Connection, Database, Row, execute, fetch
from weir.control.queue_definitions import QueueDefinitions, define_queue
from weir.control.scopes import scope_names
from weir.control.spec_register import SQL as SPECS_SQL
from weir.control.spec_register import SpecRegister
from weir.control.sql import load_queries
from weir.control.tenants import ensure_environment
from weir.errors import Conflict, InvalidInput
from weir.model.clock import Clock, SystemClock
from weir.model.names import EnvironmentRef
from weir.spec.dump import dumped
from weir.spec.ir import AppSpec
from weir.spec.language import spec_of
from weir.spec.plan import Effect, Plan, plan

SQL = load_queries("weir.control", "declared_apps.sql")

ScheduleFollower = Callable[[Connection, EnvironmentRef, AppSpec], Awaitable[None]]
"""Makes the schedules of an app match its declaration, in the same transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredApp:
    """An app as it declared itself last."""

    app: AppSpec
    actor: str
    declared_at_ms: int


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
        return [
            _declared(row)
            for row in await self._database.fetch(SQL["declared_apps"], **scope_names(environment))
        ]

    async def plan(self, environment: EnvironmentRef, app: AppSpec) -> Plan:
        """The changes that declaring `app` would make, and the reasons to refuse them."""
        _check_parts(app)
        others = await self.of(environment)
        before = await self._before(environment, app, others)
        found = plan(before, app, await self._specs.holdings(environment))
        removed = [one for one in found.changes if one.kind == "queue" and one.effect is Effect.REMOVE]
        return replace(
            found,
            changes=tuple(one for one in found.changes if one not in removed),
            # A refusal to remove a queue does not count here, because the queue stays.
            refusals=(
                *(
                    one
                    for one in found.refusals
                    if not any(f"queue `{gone.name}`" in one for gone in removed)
                ),
                *await self._owned_elsewhere(environment, app, others),
            ),
            warnings=(
                *found.warnings,
                *(
                    f"queue `{one.name}` is not declared any more; it stays until `weir queue delete`"
                    for one in removed
                ),
            ),
        )

    async def declare(self, environment: EnvironmentRef, app: AppSpec, *, actor: str) -> Plan:
        """Make the queues and schedules of `app` hold, all of them or none; Conflict if one is refused."""
        found = await self.plan(environment, app)
        if not found.allowed:
            raise Conflict("; ".join(found.refusals), refusals=list(found.refusals))
        if not found.changes and app in [one.app for one in await self.of(environment)]:
            return found
        now_ms = self._clock.now_ms()
        before = await self._before(environment, app, await self.of(environment))
        async with self._database.transaction() as connection:
            await fetch(connection, SPECS_SQL["lock_specs"])
            await ensure_environment(connection, environment, now_ms=now_ms)
            document: dict[str, Any] = dumped(app)
            await execute(
                connection,
                SQL["declare_app"],
                app=app.name,
                spec=Json(document),
                actor=actor,
                now_ms=now_ms,
                **scope_names(environment),
            )
            for queue in app.queues:
                await define_queue(connection, environment.queue(queue.name), queue, now_ms=now_ms)
            await self._follow_schedules(connection, environment, app)
            # Last, so that a refusal of the broker undoes everything above.
            await self._specs.define_in_broker(environment, app.queues, before=before)
        return found

    async def _before(
        self, environment: EnvironmentRef, app: AppSpec, declared: list[DeclaredApp]
    ) -> AppSpec:
        """The app as it declared itself before, with its queues as they are defined now."""
        known = next((one.app for one in declared if one.app.name == app.name), AppSpec(name=app.name))
        concerned = {queue.name for queue in (*known.queues, *app.queues)}
        definitions = await QueueDefinitions(self._database).of(environment)
        queues = tuple(one.spec for one in definitions if one.queue.queue in concerned)
        return replace(known, queues=queues)

    async def _owned_elsewhere(
        self, environment: EnvironmentRef, app: AppSpec, declared: list[DeclaredApp]
    ) -> list[str]:
        """Refusals for queues that belong to the spec or to another app."""
        spec = await self._specs.current(environment)
        owners = {queue.name: f"the spec `{spec.app.name}`" for queue in spec.app.queues} if spec else {}
        for other in declared:
            if other.app.name != app.name:
                owners |= {queue.name: f"the app `{other.app.name}`" for queue in other.app.queues}
        return [
            f"queue `{queue.name}` belongs to {owners[queue.name]}; use another name, or take it out there"
            for queue in app.queues
            if queue.name in owners
        ]


def _check_parts(app: AppSpec) -> None:
    """An app in code has queues and schedules; everything else belongs to a spec."""
    if app.webhooks or app.channels or app.alerts or app.concurrency is not None:
        raise InvalidInput(
            "an app declares queues and schedules only; put webhooks, channels, alerts and the concurrency "
            "of the environment into a spec"
        )
    acting = next((queue.name for queue in app.queues if queue.action is not None), None)
    if acting is not None:
        raise InvalidInput(f"queue `{acting}` of an app has an action; its tasks are the action")


def _declared(row: Row) -> DeclaredApp:
    return DeclaredApp(app=spec_of(row["spec"]), actor=row["actor"], declared_at_ms=row["declared_at_ms"])
