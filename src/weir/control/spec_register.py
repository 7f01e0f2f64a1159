"""The register of applied specs: revisions in PostgreSQL, applied in one transaction with their queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import quote
from weakref import WeakValueDictionary

from weir.control.changes import THE_LIMIT, Change, Changed, Changes, Queues, Risks, mark_untold
from weir.control.database import Connection, Database, execute, fetch, fetch_one
from weir.control.queue_definitions import define_stored, forget_queues, users_of
from weir.control.scopes import scope_names
from weir.control.spec_plans import (
    Facts,
    Prepared,
    SpecRules,
    SpecText,
    keep,
    prepare_spec,
)
from weir.control.sql import load_queries
from weir.control.tenants import SQL as TENANTS_SQL
from weir.errors import Conflict, Overloaded
from weir.model.clock import Clock, SystemClock
from weir.model.names import EnvironmentRef
from weir.model.sandbox import SPECS, Budget
from weir.spec.ir import AppSpec
from weir.spec.plan import Holding, Plan

SQL = load_queries("weir.control", "spec_register.sql")
KEPT_REVISIONS = 50
NO_RULES = SpecRules()
BUDGET = Budget(processor_s=10.0, wall_s=60.0, memory_bytes=512 << 20)
"""What reading and planning one spec may cost; the largest takes 2 s and 60 MiB."""
# Plans and applies in one process, waiting ones included: of an environment, of an organization, of all.
_MAX_OF_ENVIRONMENT = 3
_MAX_OF_ORGANIZATION = 6
_MAX_HERE = 24
_RETRY_AFTER_S = 1.0
# How long an apply waits for another one of its environment.
_TURN_S = 2.0
# How often a plan is made again because something changed before it was applied.
_TRIES = 5
T = TypeVar("T")

Companion = Callable[[Connection, EnvironmentRef, AppSpec | None, AppSpec], Awaitable[None]]
"""Changes other parts of an app, such as channels and alert rules, in the same transaction. It gets the app
that was applied before and the new one, without their queues."""
Record = Callable[[str, int], Awaitable[None]]
"""Records a change in its transaction; it gets the name of the app and the revision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRevision:
    """A stored revision without its texts."""

    revision: int
    file: str
    actor: str
    applied_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSpec:
    """A stored revision; `spec` is JSON."""

    revision: int
    file: str
    actor: str
    applied_at_ms: int
    source: str
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The result of applying a spec."""

    revision: int
    plan: Any
    """The plan, as it was asked for."""
    hooks: Mapping[str, bool]
    """Each webhook, and whether it has the short address `/hook/{name}`."""
    told: bool
    """Whether the broker knows the queues already."""

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
        rules: SpecRules = NO_RULES,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._queues = queues
        self.changes = Changes(database, queues, clock=clock)
        self._companions = companions
        self._rules = rules
        self._clock = clock or SystemClock()
        self._turns: WeakValueDictionary[EnvironmentRef, asyncio.Lock] = WeakValueDictionary()
        self._working: Counter[str | EnvironmentRef] = Counter()

    async def current(self, environment: EnvironmentRef) -> AppliedSpec | None:
        row = await self._database.fetch_one(SQL["current_spec"], **scope_names(environment))
        return None if row is None else AppliedSpec(**row)

    async def revision(self, environment: EnvironmentRef, revision: int) -> AppliedSpec | None:
        """One revision, if it is still kept."""
        row = await self._database.fetch_one(
            SQL["spec_revision"], revision=revision, **scope_names(environment)
        )
        return None if row is None else AppliedSpec(**row)

    async def history(self, environment: EnvironmentRef) -> list[SpecRevision]:
        """The revisions that are kept, newest first."""
        rows = await self._database.fetch(
            SQL["spec_history"], **scope_names(environment), limit=KEPT_REVISIONS
        )
        return [SpecRevision(**row) for row in rows]

    async def plan(
        self, environment: EnvironmentRef, text: SpecText, *, show: Callable[[Plan], Any] = keep
    ) -> Any:
        """The plan of a spec, in the form that `show` gives it."""
        async with self.at_work(environment):
            _, prepared = await self._prepare(environment, text, show)
        return prepared.shown

    async def apply(
        self,
        environment: EnvironmentRef,
        text: SpecText,
        *,
        actor: str,
        expected: int | None = None,
        show: Callable[[Plan], Any] = keep,
        record: Record | None = None,
    ) -> Applied:
        """Apply all of a spec or nothing. Conflict if it is refused, or not at revision `expected`."""

        async def write(prepared: Prepared[Any], change: Change) -> tuple[int, dict[str, bool]]:
            revision = await self._write(environment, text, prepared, change, actor=actor)
            if record is not None:
                await record(prepared.name, revision)
            return revision, await self._claim(change.connection, environment, prepared.after)

        async with self.at_work(environment), self._turn(environment):
            prepared, (revision, hooks) = await self.carry_out(
                environment,
                lambda: self._prepare(environment, text, show),
                write,
                expected=expected,
            )
        told = await self.changes.tell(environment)
        return Applied(revision=revision, plan=prepared.shown, hooks=hooks, told=told)

    async def carry_out(
        self,
        environment: EnvironmentRef,
        prepare: Callable[[], Awaitable[tuple[int, Prepared[Any]]]],
        write: Callable[[Prepared[Any], Change], Awaitable[T]],
        *,
        expected: int | None = None,
    ) -> tuple[Prepared[Any], T]:
        """Plan and write at one revision of the environment: again if it changed in between."""
        for tries_left in reversed(range(_TRIES)):
            revision, prepared = await prepare()
            if expected is not None and revision != expected:
                raise Changed(environment, expected=expected, found=revision)
            if prepared.refusals:
                raise Conflict("; ".join(prepared.refusals), refusals=list(prepared.refusals))
            risks = Risks(removed=prepared.removed, reordered=prepared.reordered)
            try:
                async with self.changes.change(environment, expected=revision, risks=risks) as change:
                    return prepared, await write(prepared, change)
            except Changed:
                if expected is not None or not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    @asynccontextmanager
    async def _turn(self, environment: EnvironmentRef) -> AsyncIterator[None]:
        """Applies to one environment wait for each other here, so that none plans in vain."""
        turn = self._turns.setdefault(environment, asyncio.Lock())
        try:
            async with asyncio.timeout(_TURN_S):
                await turn.acquire()
        except TimeoutError:
            raise _busy() from None
        try:
            yield
        finally:
            turn.release()

    @asynccontextmanager
    async def at_work(self, environment: EnvironmentRef) -> AsyncIterator[None]:
        """Count the work on a spec while the block runs; Overloaded at once if there is too much of it."""
        bounds: dict[str | EnvironmentRef, int] = {
            environment: _MAX_OF_ENVIRONMENT,
            environment.organization: _MAX_OF_ORGANIZATION,
            "": _MAX_HERE,
        }
        if any(self._working[key] >= bound for key, bound in bounds.items()):
            raise _busy()
        self._working.update(bounds.keys())
        try:
            yield
        finally:
            self._working.subtract(bounds.keys())
            self._working += Counter()

    async def facts(self, environment: EnvironmentRef) -> Facts:
        """What a plan depends on now."""
        async with self._database.connection() as connection:
            row = await fetch_one(connection, SQL["plan_facts"], **scope_names(environment))
            users = await users_of(connection, environment)
        assert row is not None
        counts = zip(row.pop("dead_queues"), row.pop("dead_counts"), strict=True)
        holdings = {name: Holding(dead=int(dead)) for name, dead in counts}
        for state in await self._queues.states(environment):
            if state.depth or state.running:
                name = state.queue.queue
                holdings[name] = replace(
                    holdings.get(name, Holding()),
                    waiting=state.depth,
                    running=state.running,
                    oldest_age_ms=state.oldest_age_ms,
                )
        row["alert_channels"], row["secrets"] = frozenset(row["alert_channels"]), frozenset(row["secrets"])
        return Facts(holdings=holdings, users=users, **row)

    async def in_box(self, environment: EnvironmentRef, function: Callable[..., T], *args: Any) -> T:
        """Compute something about a spec in a process of its own."""
        owner = environment.organization
        return await SPECS.run(function, *args, owner=owner, what="this spec", budget=BUDGET)

    async def _prepare(
        self, environment: EnvironmentRef, text: SpecText, show: Callable[[Plan], Any]
    ) -> tuple[int, Prepared[Any]]:
        facts = await self.facts(environment)
        prepared = await self.in_box(environment, prepare_spec, text, facts, self._rules, show)
        return facts.revision, prepared

    async def _write(
        self,
        environment: EnvironmentRef,
        text: SpecText,
        prepared: Prepared[Any],
        change: Change,
        *,
        actor: str,
    ) -> int:
        """Write what a spec says, inside the change; returns the revision of the spec."""
        scope, now_ms = scope_names(environment), self._clock.now_ms()
        connection = change.connection
        revision = prepared.spec_revision
        if prepared.changes or not prepared.same_text:
            row = await fetch_one(
                connection,
                SQL["store_spec"],
                spec=prepared.document,
                source=text.source,
                file=text.file,
                actor=actor,
                now_ms=now_ms,
                **scope,
            )
            assert row is not None
            revision = int(row["revision"])
            await execute(connection, SQL["drop_old_specs"], revision=revision, keep=KEPT_REVISIONS, **scope)
        await define_stored(connection, environment, prepared.queues, revision=change.revision, now_ms=now_ms)
        await forget_queues(connection, environment, prepared.removed)
        if prepared.sets_limit:
            limit = prepared.after.concurrency
            await execute(
                connection,
                TENANTS_SQL["limit_environment"],
                concurrency=limit,
                by_spec=limit is not None,
                **scope,
            )
            await mark_untold(connection, environment, [THE_LIMIT])
        for companion in self._companions:
            await companion(connection, environment, prepared.before, prepared.after)
        return revision

    async def _claim(
        self, connection: Connection, environment: EnvironmentRef, app: AppSpec
    ) -> dict[str, bool]:
        """Claim the free short addresses, and release the addresses that the app does not use any more."""
        names = [webhook.name for webhook in app.webhooks]
        scope = scope_names(environment)
        await execute(connection, SQL["release_hook_names"], names=names, **scope)
        await execute(connection, SQL["claim_hook_names"], names=names, **scope)
        own = {row["name"] for row in await fetch(connection, SQL["hook_names"], **scope)}
        return {name: name in own for name in names}


def _busy() -> Overloaded:
    return Overloaded(
        "too many specs of this environment are being planned or applied; try again",
        retry_after_s=_RETRY_AFTER_S,
    )
