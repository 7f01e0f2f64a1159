"""The register of applied specs: revisions in PostgreSQL, applied in one transaction with their queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ParamSpec, Protocol, TypeVar
from urllib.parse import quote

from psycopg.types.json import Json

from weir.control.database import Connection, Database, Row, execute, fetch, fetch_one
from weir.control.queue_definitions import SQL as QUEUES_SQL
from weir.control.queue_definitions import QueueDefinitions, define_queue, queue_names
from weir.control.scopes import scope_names
from weir.control.sql import load_queries
from weir.control.tenants import SQL as TENANTS_SQL
from weir.control.tenants import ensure_environment
from weir.errors import Conflict, InvalidInput, Unavailable, WeirError
from weir.model.bounded_threads import BoundedThreads
from weir.model.clock import Clock, SystemClock
from weir.model.message import QueueState
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.dump import dumped
from weir.spec.ir import AppSpec, DeliverTo, QueueSpec
from weir.spec.language import read_spec, spec_of
from weir.spec.plan import Effect, Holding, Plan, plan

SQL = load_queries("weir.control", "spec_register.sql")
# How long one spec may take to be read, planned or dumped, after the specs before it. The largest takes 1 s.
THREAD_S = 10.0
P = ParamSpec("P")
T = TypeVar("T")


class Queues(Protocol):
    """The part of a broker that applying needs."""

    async def define(self, queue: QueueRef, spec: QueueSpec) -> None: ...

    async def forget(self, queue: QueueRef) -> None: ...

    async def limit(self, environment: EnvironmentRef, concurrency: int | None) -> None: ...

    async def states(self, environment: EnvironmentRef) -> list[QueueState]: ...


Companion = Callable[[Connection, EnvironmentRef, AppSpec | None, AppSpec], Awaitable[None]]
"""Changes other parts of an app, such as channels and alert rules, in the same transaction. It gets the app
that was applied before and the new one."""


TargetCheck = Callable[[str], object]
"""Raises InvalidInput if this installation may never deliver to a URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSpec:
    """A stored revision."""

    revision: int
    app: AppSpec
    source: str
    file: str
    actor: str
    applied_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The result of applying a spec."""

    revision: int
    plan: Plan
    hooks: Mapping[str, bool]
    """Each webhook, and whether it has the short address `/hook/{name}`."""

    def addresses(self, environment: EnvironmentRef) -> dict[str, str]:
        """The address of each webhook: the short one, or the long one if another environment has it."""
        parts = environment.names
        return {
            name: "/hook/" + "/".join(quote(part, safe="") for part in ((name,) if short else (*parts, name)))
            for name, short in self.hooks.items()
        }


class SpecRegister:
    """The register of applied specs."""

    def __init__(
        self,
        database: Database,
        queues: Queues,
        *,
        companions: Sequence[Companion] = (),
        check_target: TargetCheck | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._queues = queues
        self._companions = companions
        self._check_target = check_target
        self._clock = clock or SystemClock()
        # One thread: each thread takes the interpreter from the event loop for a few milliseconds at a time.
        self._thread = BoundedThreads(1, patience_s=THREAD_S, name="weir-spec")

    async def read(self, text: str, *, file: str) -> AppSpec:
        """The checked app that a text describes; SpecInvalid shows every mistake at its place."""
        return await self._in_thread(read_spec, text, file=file)

    async def current(self, environment: EnvironmentRef) -> AppliedSpec | None:
        row = await self._database.fetch_one(SQL["current_spec"], **scope_names(environment))
        return None if row is None else await self._in_thread(_applied, row)

    async def history(self, environment: EnvironmentRef, *, limit: int = 50) -> list[AppliedSpec]:
        """The revisions, newest first."""
        rows = await self._database.fetch(SQL["spec_history"], **scope_names(environment), limit=limit)
        return [await self._in_thread(_applied, row) for row in rows]

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work that takes long, in the thread and one piece after the other."""
        try:
            return await self._thread.run(work, *args, **kwargs)
        except TimeoutError:
            raise Unavailable("this process is busy with large specs; try again", retry_after_s=5) from None

    async def plan(self, environment: EnvironmentRef, app: AppSpec) -> Plan:
        """The changes that applying `app` would make, and the reasons to refuse them."""
        before = await self._before(environment, app)
        found = await self._in_thread(plan, before, app, await self.holdings(environment))
        return replace(
            found,
            refusals=(
                *found.refusals,
                *self._unreachable(app),
                *await self._find_owned_by_apps(environment, app),
            ),
            warnings=(
                *found.warnings,
                *await self._find_unheard_alerts(environment, app),
                *await self._find_missing_secrets(environment, app),
            ),
        )

    async def apply(
        self, environment: EnvironmentRef, app: AppSpec, *, source: str, file: str, actor: str
    ) -> Applied:
        """Apply all of `app` or nothing; Conflict if messages would be lost."""
        found = await self.plan(environment, app)
        if not found.allowed:
            raise Conflict("; ".join(found.refusals), refusals=list(found.refusals))
        before = await self._before(environment, app)
        async with self._database.transaction() as connection:
            await fetch(connection, SQL["lock_specs"])
            revision = await self._store(connection, environment, app, source=source, file=file, actor=actor)
            removed = _removed(found)
            await self._define(connection, environment, app, removed=removed)
            hooks = await self._claim(connection, environment, app)
            for companion in self._companions:
                await companion(connection, environment, before, app)
            # Last, so that a refusal of the broker undoes everything above.
            await self._tell_broker(environment, app, before=before, removed=removed)
        return Applied(revision=revision, plan=found, hooks=hooks)

    async def _before(self, environment: EnvironmentRef, app: AppSpec) -> AppSpec | None:
        """The app that is applied now. Its queues are as defined now: the API may have changed them since."""
        current = await self.current(environment)
        definitions = await QueueDefinitions(self._database).of(environment)
        concerned = {queue.name for queue in app.queues}
        if current is not None:
            concerned |= {queue.name for queue in current.app.queues}
        queues = tuple(one.spec for one in definitions if one.queue.queue in concerned)
        if current is None and not queues:
            return None
        return replace(current.app if current else AppSpec(name=app.name), queues=queues)

    def _unreachable(self, app: AppSpec) -> list[str]:
        """Refusals for URLs that this installation never delivers to. Otherwise each message would fail."""
        refusals = []
        for queue in app.queues:
            if self._check_target is None or not isinstance(queue.action, DeliverTo):
                continue
            try:
                self._check_target(queue.action.url)
            except InvalidInput as refused:
                refusals.append(f"queue `{queue.name}` delivers to `{queue.action.url:.200}`: {refused}")
        return refusals

    async def _find_owned_by_apps(self, environment: EnvironmentRef, app: AppSpec) -> list[str]:
        """Refusals for queues and schedules that an app declares in its code."""
        rows = await self._database.fetch(SQL["owned_by_apps"], **scope_names(environment))
        owned = {(row["kind"], row["name"]): row["app"] for row in rows}
        wanted = [
            *(("queue", one.name) for one in app.queues),
            *(("schedule", one.name) for one in app.schedules),
        ]
        return [
            f"{kind} `{name}` belongs to the app `{owned[kind, name]}`; use another name, or remove it there"
            for kind, name in wanted
            if (kind, name) in owned
        ]

    async def _find_unheard_alerts(self, environment: EnvironmentRef, app: AppSpec) -> list[str]:
        """Warnings for alert channels that do not exist: their secrets are not part of the spec."""
        rows = await self._database.fetch(SQL["alert_channels"], **scope_names(environment))
        known = {row["name"] for row in rows}
        return [
            f"alert `{alert.name}` names the alert channel `{channel}`, which does not exist: "
            "nobody will be notified until `weir alert-channel create` makes it"
            for alert in app.alerts
            for channel in alert.channels
            if channel not in known
        ]

    async def _find_missing_secrets(self, environment: EnvironmentRef, app: AppSpec) -> list[str]:
        """Warnings for secrets that the environment does not have."""
        rows = await self._database.fetch(SQL["secret_names"], **scope_names(environment))
        stored = {row["name"] for row in rows}
        return [
            f"{part} names the secret `{name}`, which is not stored (a variable of the server is not read): "
            f"{effect} until `weir secret set {name}` stores it"
            for part, effect, names in _secrets_by_part(app)
            for name in names
            if not stored & set(names)
        ]

    async def holdings(self, environment: EnvironmentRef) -> dict[str, Holding]:
        """How many messages and dead letters each queue of an environment holds now."""
        rows = await self._database.fetch(SQL["dead_counts"], **scope_names(environment))
        dead = {row["queue"]: int(row["dead_count"]) for row in rows}
        states = {state.queue.queue: state for state in await self._queues.states(environment)}
        return {
            name: Holding(
                waiting=states[name].depth if name in states else 0,
                running=states[name].running if name in states else 0,
                oldest_age_ms=states[name].oldest_age_ms if name in states else 0,
                dead=dead.get(name, 0),
            )
            for name in {*states, *dead}
        }

    async def _store(
        self,
        connection: Connection,
        environment: EnvironmentRef,
        app: AppSpec,
        *,
        source: str,
        file: str,
        actor: str,
    ) -> int:
        now_ms = self._clock.now_ms()
        document = await self._in_thread(dumped, app)
        await ensure_environment(connection, environment, now_ms=now_ms)
        row = await fetch_one(connection, SQL["current_spec"], **scope_names(environment))
        revision = 1 if row is None else int(row["revision"]) + 1
        await execute(
            connection,
            SQL["store_spec"],
            **scope_names(environment),
            revision=revision,
            spec=Json(document),
            source=source,
            file=file,
            actor=actor,
            now_ms=now_ms,
        )
        return revision

    async def _define(
        self, connection: Connection, environment: EnvironmentRef, app: AppSpec, *, removed: Sequence[str]
    ) -> None:
        now_ms = self._clock.now_ms()
        for queue in app.queues:
            await define_queue(connection, environment.queue(queue.name), queue, now_ms=now_ms)
        for name in removed:
            await execute(connection, QUEUES_SQL["forget_queue"], **queue_names(environment.queue(name)))
        await execute(
            connection,
            TENANTS_SQL["limit_environment"],
            **scope_names(environment),
            concurrency=app.concurrency,
        )

    async def _claim(
        self, connection: Connection, environment: EnvironmentRef, app: AppSpec
    ) -> dict[str, bool]:
        """Claim the free short addresses, and release the addresses that the app does not use any more."""
        names = [webhook.name for webhook in app.webhooks]
        scope = scope_names(environment)
        await execute(connection, SQL["release_hook_names"], names=names, **scope)
        await execute(connection, SQL["claim_hook_names"], names=names, **scope)
        rows = await fetch(connection, SQL["hook_names"])
        own = {row["name"] for row in rows if all(row[key] == value for key, value in scope.items())}
        return {name: name in own for name in names}

    async def _tell_broker(
        self,
        environment: EnvironmentRef,
        app: AppSpec,
        *,
        before: AppSpec | None,
        removed: Sequence[str],
    ) -> None:
        """Define the queues in the broker; if it refuses one, restore the queues before it."""
        await self.define_in_broker(environment, app.queues, before=before)
        try:
            for name in removed:
                await self._queues.forget(environment.queue(name))
            await self._queues.limit(environment, app.concurrency)
        except WeirError:
            await self._restore(environment, app.queues, before=before)
            raise

    async def define_in_broker(
        self, environment: EnvironmentRef, queues: Sequence[QueueSpec], *, before: AppSpec | None
    ) -> None:
        """Define queues in the broker; if it refuses one, restore the queues before it."""
        told: list[QueueSpec] = []
        try:
            for queue in queues:
                await self._queues.define(environment.queue(queue.name), queue)
                told.append(queue)
        except WeirError:
            await self._restore(environment, told, before=before)
            raise

    async def _restore(
        self, environment: EnvironmentRef, told: Sequence[QueueSpec], *, before: AppSpec | None
    ) -> None:
        old = {queue.name: queue for queue in before.queues} if before else {}
        for queue in told:
            with suppress(WeirError):
                ref = environment.queue(queue.name)
                earlier = old.get(queue.name)
                await (self._queues.define(ref, earlier) if earlier else self._queues.forget(ref))


def _secrets_by_part(app: AppSpec) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Each part that names secrets, and what happens while it has none of them."""
    for webhook in app.webhooks:
        if webhook.verification is not None:
            yield (
                f"webhook `{webhook.name}`",
                "everything sent to it is refused",
                webhook.verification.secrets,
            )
    for queue in app.queues:
        if isinstance(queue.action, DeliverTo):
            yield f"queue `{queue.name}`", "nothing is delivered", queue.action.secrets


def _removed(found: Plan) -> list[str]:
    return [one.name for one in found.changes if one.kind == "queue" and one.effect is Effect.REMOVE]


def _applied(row: Row) -> AppliedSpec:
    return AppliedSpec(
        revision=row["revision"],
        app=spec_of(row["spec"]),
        source=row["source"],
        file=row["file"],
        actor=row["actor"],
        applied_at_ms=row["applied_at_ms"],
    )
