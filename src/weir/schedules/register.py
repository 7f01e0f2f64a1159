"""The register of schedules in PostgreSQL: from specs, and from the API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from psycopg.types.json import Json

from weir.broker.broker import Broker
from weir.control.changes import begin_change
from weir.control.database import Connection, Database, execute, fetch, fetch_one
from weir.control.queue_definitions import find_definition
from weir.control.scopes import scope_names
from weir.control.store_clock import SQL as STORE_CLOCK
from weir.errors import Conflict, InvalidInput, NotFound, Unavailable
from weir.model.clock import Clock, SystemClock
from weir.model.ids import new_id
from weir.model.names import EnvironmentRef, check_name
from weir.schedules.queries import SQL
from weir.schedules.runs import FollowedRuns, follow_runs
from weir.schedules.schedule import Schedule, ScheduleOrigin, ScheduleRun, run_of, schedule_of
from weir.spec.bounds import MAX_PARTS
from weir.spec.check import check_remembers, check_takes_payload
from weir.spec.ir import AppSpec, ScheduleSpec
from weir.spec.payloads import check_payload
from weir.spec.timing import check_timing, next_ticks

Owner = tuple[ScheduleOrigin, str | None]
"""Who declares a schedule, and the name of the app if an app does."""
SHOWN_TICKS = 10
SHOWN_RUNS = 20
_API: Owner = (ScheduleOrigin.API, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDetail:
    """A schedule with its next ticks and its last runs, newest first."""

    schedule: Schedule
    next_ticks: tuple[int, ...]
    """Empty while it is paused."""
    runs: tuple[ScheduleRun, ...]


def check_schedule(spec: ScheduleSpec) -> ScheduleSpec:
    """Return a schedule if its names, timing and payload are valid; InvalidInput or TooLarge if they are not.

    Whether its queue exists is checked when it is stored, because only an environment knows its queues.
    """
    check_name(spec.name, what="schedule")
    check_name(spec.queue, what="queue")
    check_timing(spec.timing)
    check_payload(spec.payload)
    return spec


class Schedules:
    """The register of schedules. Schedules of a spec or an app can only be paused, resumed and run here."""

    def __init__(self, database: Database, broker: Broker, *, clock: Clock | None = None) -> None:
        self._database = database
        self._broker = broker
        self._clock = clock or SystemClock()

    async def create(self, environment: EnvironmentRef, spec: ScheduleSpec) -> Schedule:
        """Create a schedule. Its first tick is the next one from now on."""
        check_schedule(spec)
        now_ms = self._clock.now_ms()
        async with self._database.transaction() as connection:
            await begin_change(connection, environment, now_ms=now_ms)
            await _check_queue(connection, environment, spec)
            if await _find(connection, environment, spec.name) is not None:
                raise Conflict(f"there is already a schedule `{spec.name}`; choose another name or change it")
            row = await fetch_one(connection, SQL["count_schedules"], **scope_names(environment))
            if row is not None and row["schedules"] >= MAX_PARTS:
                raise Conflict(f"the environment has {MAX_PARTS:,} schedules, which is the most; delete some")
            return await _begin(connection, environment, spec, _API, now_ms=now_ms)

    async def change(self, environment: EnvironmentRef, spec: ScheduleSpec) -> Schedule:
        """Replace what a schedule says. With another timing it begins anew; otherwise no tick is lost."""
        check_schedule(spec)
        async with self._database.transaction() as connection:
            await begin_change(connection, environment, now_ms=self._clock.now_ms())
            await _check_queue(connection, environment, spec)
            before = await _lock(connection, environment, spec.name)
            _refuse_spec(before)
            return await _change(connection, before, spec, _API, now_ms=self._clock.now_ms())

    async def delete(self, environment: EnvironmentRef, name: str) -> None:
        """Delete a schedule; messages that it pushed stay."""
        async with self._database.transaction() as connection:
            schedule = await _lock(connection, environment, name)
            _refuse_spec(schedule)
            await execute(connection, SQL["delete_schedule"], id=schedule.id)

    async def pause(self, environment: EnvironmentRef, name: str, *, paused: bool) -> Schedule:
        """Pause or resume a schedule. It resumes with the next tick: ticks during a pause are not missed."""
        async with self._database.transaction() as connection:
            before = await _lock(connection, environment, name)
            if before.paused == paused:
                return before
            after = replace(before, paused=paused, refused_ms=None)
            now_ms = self._clock.now_ms()
            return await _write(connection, _from_now(after, now_ms=now_ms), now_ms=now_ms)

    async def ask_run(self, environment: EnvironmentRef, name: str) -> int:
        """Ask for a run now, even of a paused schedule; returns the time of its tick.

        The run goes out like every tick: once, whatever happens to this process.
        """
        async with self._database.transaction() as connection:
            schedule = await _lock(connection, environment, name)
            now_ms = self._clock.now_ms()
            row = await fetch_one(connection, SQL["ask_run"], id=schedule.id, now_ms=now_ms)
            return now_ms if row is None else int(row["asked_ms"])

    async def of(self, environment: EnvironmentRef) -> list[tuple[Schedule, ScheduleRun | None]]:
        """The schedules of an environment by name, each with its last run."""
        async with self._database.connection() as connection:
            rows = await fetch(connection, SQL["list_schedules"], **scope_names(environment))
            schedules = [schedule_of(row) for row in rows]
            ids = [schedule.id for schedule in schedules]
            runs = [run_of(row) for row in await fetch(connection, SQL["last_runs"], ids=ids)]
            last = await self._with_ends(connection, environment, runs)
        by_id = {run.schedule_id: run for run in last}
        return [(schedule, by_id.get(schedule.id)) for schedule in schedules]

    async def show(self, environment: EnvironmentRef, name: str) -> ScheduleDetail:
        """One schedule with its next ticks and last runs."""
        async with self._database.connection() as connection:
            schedule = await _find(connection, environment, name)
            if schedule is None:
                raise _unknown(name)
            rows = await fetch(connection, SQL["list_runs"], id=schedule.id, limit=SHOWN_RUNS)
            runs = await self._with_ends(connection, environment, [run_of(row) for row in rows])
        after_ms = max(self._clock.now_ms(), schedule.last_tick_ms)
        ticks = [] if schedule.paused else next_ticks(schedule.spec.timing, after_ms, SHOWN_TICKS)
        return ScheduleDetail(schedule=schedule, next_ticks=tuple(ticks), runs=tuple(runs))

    async def _with_ends(
        self, connection: Connection, environment: EnvironmentRef, runs: Sequence[ScheduleRun]
    ) -> list[ScheduleRun]:
        """The runs with how their messages ended. While the broker is away, only recorded ends are known."""
        unended = [run for run in runs if run.message_id is not None and run.ended is None]
        try:
            followed = await follow_runs(connection, self._broker, environment, unended)
        except Unavailable:
            followed = FollowedRuns(ended={})
        return [replace(run, ended=followed.end_of(run)) for run in runs]


async def follow_spec(
    connection: Connection, environment: EnvironmentRef, _: AppSpec | None, app: AppSpec
) -> None:
    """Make the schedules follow an applied spec, in the transaction that applies it.

    A schedule that stays keeps its id, its pause and how far it is. Schedules of the API are left alone,
    unless the spec has a schedule of the same name: then the spec takes it over.
    """
    now_ms = await _store_time(connection)
    await declare_schedules(connection, environment, app.schedules, now_ms=now_ms)


async def follow_app(connection: Connection, environment: EnvironmentRef, app: AppSpec) -> None:
    """Make the schedules follow an app, in the transaction that declares it."""
    for spec in app.schedules:
        check_schedule(spec)
    now_ms = await _store_time(connection)
    await declare_schedules(connection, environment, app.schedules, now_ms=now_ms, app=app.name)


async def _store_time(connection: Connection) -> int:
    row = await fetch_one(connection, STORE_CLOCK["store_time"])
    return SystemClock().now_ms() if row is None else int(row["now_ms"])


async def declare_schedules(
    connection: Connection,
    environment: EnvironmentRef,
    specs: Sequence[ScheduleSpec],
    *,
    now_ms: int,
    app: str | None = None,
) -> None:
    """Make these the schedules of the environment's spec, or of an app, inside the caller's transaction."""
    owner = (ScheduleOrigin.SPEC, None) if app is None else (ScheduleOrigin.APP, app)
    rows = await fetch(connection, SQL["lock_schedules"], **scope_names(environment))
    known = {row["name"]: schedule_of(row) for row in rows}
    wanted = {spec.name for spec in specs}
    for name, schedule in known.items():
        if (schedule.origin, schedule.app) == owner and name not in wanted:
            await execute(connection, SQL["delete_schedule"], id=schedule.id)
    for spec in specs:
        before = known.get(spec.name)
        if before is None:
            await _begin(connection, environment, spec, owner, now_ms=now_ms)
            continue
        _refuse_other_owner(before, owner)
        if (before.spec, before.origin, before.app) != (spec, *owner):
            await _change(connection, before, spec, owner, now_ms=now_ms)


def _refuse_spec(schedule: Schedule) -> None:
    if schedule.origin is ScheduleOrigin.SPEC:
        raise Conflict(
            f"the schedule `{schedule.spec.name}` belongs to the spec; change it there and apply the spec"
        )
    if schedule.origin is ScheduleOrigin.APP:
        raise Conflict(
            f"the schedule `{schedule.spec.name}` belongs to the app `{schedule.app}`; change it in its code"
        )


def _refuse_other_owner(schedule: Schedule, owner: Owner) -> None:
    """Raise Conflict if the spec or an app owns the schedule, unless it is `owner`.

    A schedule of the API may be taken over.
    """
    if schedule.origin is not ScheduleOrigin.API and (schedule.origin, schedule.app) != owner:
        whose = "the spec" if schedule.app is None else f"the app `{schedule.app}`"
        raise Conflict(
            f"the schedule `{schedule.spec.name}` belongs to {whose}; use another name, or take it out there"
        )


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no schedule `{name}` in this environment")


async def _check_queue(connection: Connection, environment: EnvironmentRef, spec: ScheduleSpec) -> None:
    """Refuse a schedule that its queue cannot serve. The environment is locked, so the queue stays."""
    definition = await find_definition(connection, environment.queue(spec.queue))
    if definition is None:
        raise InvalidInput(f"there is no queue `{spec.queue}`; define it first")
    check_remembers(spec, definition.spec)
    check_takes_payload(spec, definition.spec)


async def _find(connection: Connection, environment: EnvironmentRef, name: str) -> Schedule | None:
    row = await fetch_one(connection, SQL["find_schedule"], name=name, **scope_names(environment))
    return None if row is None else schedule_of(row)


async def _lock(connection: Connection, environment: EnvironmentRef, name: str) -> Schedule:
    row = await fetch_one(connection, SQL["lock_schedule"], name=name, **scope_names(environment))
    if row is None:
        raise _unknown(name)
    return schedule_of(row)


async def _begin(
    connection: Connection,
    environment: EnvironmentRef,
    spec: ScheduleSpec,
    owner: Owner,
    *,
    now_ms: int,
) -> Schedule:
    schedule = Schedule(
        id=new_id(),
        environment=environment,
        spec=spec,
        origin=owner[0],
        app=owner[1],
        paused=False,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        last_tick_ms=now_ms,
        next_tick_ms=None,
    )
    return await _write(connection, _from_now(schedule, now_ms=now_ms), now_ms=now_ms)


async def _change(
    connection: Connection, before: Schedule, spec: ScheduleSpec, owner: Owner, *, now_ms: int
) -> Schedule:
    after = replace(before, spec=spec, origin=owner[0], app=owner[1])
    if spec.timing != before.spec.timing:
        after = _from_now(replace(after, refused_ms=None), now_ms=now_ms)
    return await _write(connection, after, now_ms=now_ms)


def _from_now(schedule: Schedule, *, now_ms: int) -> Schedule:
    """The schedule with its next tick from now."""
    found = next_ticks(schedule.spec.timing, now_ms, 1)
    return replace(schedule, last_tick_ms=now_ms, next_tick_ms=found[0] if found else None)


def due_of(schedule: Schedule, *, retry_at_ms: int = 0) -> int | None:
    """When a scheduler next has something to do for a schedule; None if never."""
    tick_ms = None if schedule.paused else schedule.next_tick_ms
    moments = [moment for moment in (tick_ms, schedule.asked_ms) if moment is not None]
    return max(min(moments), retry_at_ms) if moments else None


async def _write(connection: Connection, schedule: Schedule, *, now_ms: int) -> Schedule:
    spec = schedule.spec
    await execute(
        connection,
        SQL["put_schedule"],
        id=schedule.id,
        name=spec.name,
        queue=spec.queue,
        cron=spec.timing.cron,
        every_ms=spec.timing.every_ms,
        timezone=spec.timing.timezone,
        payload=Json(spec.payload),
        missed=spec.missed.value,
        overlap=spec.overlap.value,
        origin=schedule.origin.value,
        app=schedule.app,
        paused=schedule.paused,
        now_ms=now_ms,
        last_tick_ms=schedule.last_tick_ms,
        next_tick_ms=schedule.next_tick_ms,
        refused_ms=schedule.refused_ms,
        due_ms=due_of(schedule),
        **scope_names(schedule.environment),
    )
    return replace(schedule, updated_at_ms=now_ms, refusals=0, problem=None)
