"""Changes of an environment's queues: written to PostgreSQL first, then told to the broker until it is equal.

Specs, apps and the API all change queues in this order:

1. The row of the environment is locked and its revision counted, so that changes wait for each other.
2. Everything is checked and written, together with a row per changed queue in `untold_queues`.
3. What the broker may refuse, because a queue holds messages, is done in the broker before the commit.
4. After the commit the broker is told what PostgreSQL says, and the rows go. A process that cannot, or that
   ends in between, leaves them to the others, which look for rows twice per second.

Before step 3 the rows are committed on their own, for a later time. So whatever happens between the broker's
change and the commit, the broker is told again what PostgreSQL then says.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import structlog

from weir.control.database import Connection, Database, Row, execute, fetch, fetch_one
from weir.control.scopes import scope_names, scope_of
from weir.control.sql import load_queries
from weir.control.stored_queues import read_stored_queue
from weir.control.tenants import ensure_environment
from weir.errors import Conflict, ControlUnavailable, Unavailable, WeirError
from weir.model.backoff import Backoff
from weir.model.clock import Clock, SystemClock
from weir.model.message import QueueState
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import QueueSpec

SQL = load_queries("weir.control", "changes.sql")
log = structlog.get_logger("weir.control")
THE_LIMIT = ""
"""Stands for the limit of the environment among the names of its queues."""
LOOK_S = 0.5
# How long a change may take between the broker and its commit. Later others take it for ended.
_RESERVED_S = 60.0
# Longer than a plain statement needs: a change may wait for the lock of another one.
_CHANGE_S = 4.0
# How many queues are told in one transaction, and for how long one goes on: their rows are locked meanwhile.
_BATCH = 100
_BATCH_S = 5.0
# How long the broker may take for one queue.
_BROKER_S = 2.0
# How long a caller waits until the broker knows its change. After that the loop goes on with it.
_WAIT_S = 60.0
_WAIT_FOR_ONE_S = 4.0
_GLANCE_S = 0.05
# A batch waits for Redis between its statements.
_IDLE_S = 20.0
_ANSWER_S = 2.0
"""How long PostgreSQL may take to answer: its rows are few, and a caller may wait."""
_PAUSES = Backoff(first_s=0.5, longest_s=60.0)


class Queues(Protocol):
    """The part of a broker that changes need."""

    async def define(self, queue: QueueRef, spec: QueueSpec) -> None: ...

    async def forget(self, queue: QueueRef) -> None: ...

    async def pause(self, queue: QueueRef) -> None: ...

    async def resume(self, queue: QueueRef) -> None: ...

    async def limit(self, environment: EnvironmentRef, concurrency: int | None) -> None: ...

    async def states(self, environment: EnvironmentRef) -> list[QueueState]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Risks:
    """What the broker may refuse, because a queue holds messages."""

    removed: tuple[str, ...] = ()
    reordered: tuple[QueueSpec, ...] = ()

    @property
    def names(self) -> list[str]:
        return [*self.removed, *(spec.name for spec in self.reordered)]


NO_RISKS = Risks()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that is being made: its connection, and the revision that it makes."""

    connection: Connection
    revision: int


class Changes:
    """Changes environments, and tells the broker about it."""

    def __init__(self, database: Database, broker: Queues, *, clock: Clock | None = None) -> None:
        self._database = database
        self._broker = broker
        self._clock = clock or SystemClock()
        self._releasing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def change(
        self, environment: EnvironmentRef, *, expected: int | None = None, risks: Risks = NO_RISKS
    ) -> AsyncIterator[Change]:
        """Make everything that the block writes one change. Conflict if the environment is not at `expected`.

        Each statement that this asyncio task sends inside the block belongs to the transaction.
        """
        reserved = False
        try:
            async with (
                self._database.together(answer_s=_CHANGE_S, idle_s=_RESERVED_S / 2),
                self._database.connection() as connection,
            ):
                revision = await begin_change(connection, environment, now_ms=self._clock.now_ms())
                if expected is not None and revision != expected + 1:
                    raise Changed(environment, expected=expected, found=revision - 1)
                if risks.names:
                    # In a task, so that it is committed at once. The environment is locked, so nobody else
                    # tells the broker about these queues and takes the reservation away.
                    await asyncio.create_task(self._reserve(environment, risks))
                    reserved = True
                yield Change(connection=connection, revision=revision)
                await mark_untold(connection, environment, risks.names)
                for name in risks.removed:
                    await _in_time(self._broker.forget(environment.queue(name)))
                for spec in risks.reordered:
                    await _in_time(self._broker.define(environment.queue(spec.name), spec))
        except BaseException as error:
            if reserved:
                releasing = asyncio.create_task(self._release(environment, risks))
                self._releasing.add(releasing)
                releasing.add_done_callback(self._releasing.discard)
                # A caller whose store hangs has waited long enough.
                if isinstance(error, WeirError) and not isinstance(error, Unavailable):
                    await asyncio.shield(releasing)
            raise

    async def lock(self, environment: EnvironmentRef) -> None:
        """Let nobody else change the environment until the caller's transaction ends."""
        await self._database.fetch_one(SQL["lock_environment"], **scope_names(environment))

    async def tell(self, environment: EnvironmentRef, *queues: str) -> bool:
        """Tell the broker what changed, or only about some queues; returns whether it knows it now.

        What it does not know, the loop tells it later.
        """
        names = list(queues) or None
        try:
            async with asyncio.timeout(_WAIT_S if names is None else _WAIT_FOR_ONE_S):
                while await self._tell_batch(environment, names) or await self._others_tell(
                    environment, names
                ):
                    pass
        except (Unavailable, TimeoutError):
            return False
        return True

    async def run(self) -> None:
        """Tell the broker what other processes could not, until cancelled."""
        while True:
            told = 0
            with suppress(ControlUnavailable):
                for row in await self._database.fetch(SQL["untold_environments"]):
                    # Environments take turns, and those of a shard that is away do not hold up the others.
                    with suppress(Unavailable):
                        told += await self._tell_batch(scope_of(row))
            if not told:
                await asyncio.sleep(LOOK_S)

    async def _reserve(self, environment: EnvironmentRef, risks: Risks) -> None:
        """Note for later that the broker is to be told about the queues, in case this process ends."""
        async with self._database.connection() as connection:
            await mark_untold(connection, environment, risks.names, pausing=True, pause_s=_RESERVED_S)

    async def _release(self, environment: EnvironmentRef, risks: Risks) -> None:
        """Tell the broker at once what still holds, because the change did not happen.

        If that fails too, the rows that were reserved fall due by themselves.
        """
        with suppress(WeirError):
            async with self._database.transaction() as connection:
                await mark_untold(connection, environment, risks.names, pausing=True)
            await self.tell(environment, *risks.names)

    async def _others_tell(self, environment: EnvironmentRef, queues: list[str] | None) -> bool:
        """Whether another process is at it; waits a moment if it is."""
        row = await self._database.fetch_one(SQL["count_untold"], queues=queues, **scope_names(environment))
        if row is None or not row["count"]:
            return False
        await asyncio.sleep(_GLANCE_S)
        return True

    async def _tell_batch(self, environment: EnvironmentRef, queues: list[str] | None = None) -> int:
        """Tell the broker about some queues, whose rows are locked meanwhile; returns about how many."""
        started_s = time.monotonic()
        told: list[str] = []
        rows: list[Row] = []
        try:
            async with self._database.transaction(answer_s=_ANSWER_S, idle_s=_IDLE_S) as connection:
                rows = await fetch(
                    connection, SQL["take_untold"], queues=queues, limit=_BATCH, **scope_names(environment)
                )
                for row in rows:
                    # A process that was frozen must not tell what is old by now.
                    if time.monotonic() - started_s > _BATCH_S:
                        break
                    if await self._tell_one(connection, environment, row):
                        told.append(row["queue"])
                if told:
                    await execute(connection, SQL["drop_told"], queues=told, **scope_names(environment))
        except BaseException:
            # The rows may be gone already, and the last words may have been old ones.
            if time.monotonic() - started_s > _BATCH_S:
                async with self._database.transaction() as connection:
                    await mark_untold(connection, environment, [row["queue"] for row in rows])
            raise
        return len(told)

    async def _tell_one(self, connection: Connection, environment: EnvironmentRef, row: Row) -> bool:
        """Tell the broker about one queue; False if it refused and is asked again later."""
        queue = row["queue"]
        try:
            if queue == THE_LIMIT:
                await _in_time(self._broker.limit(environment, row["concurrency"]))
            elif row["spec"] is None:
                await _in_time(self._broker.forget(environment.queue(queue)))
            else:
                ref = environment.queue(queue)
                await _in_time(self._broker.define(ref, read_stored_queue(row["spec"])))
                if row["pausing"]:
                    await _in_time(self._broker.pause(ref) if row["paused"] else self._broker.resume(ref))
        except Unavailable:
            raise
        # Whatever else it is belongs to this queue, and the others are told.
        except Exception as error:
            log.warning("the broker is not equal to PostgreSQL yet", queue=queue, error=str(error))
            pause_s = _PAUSES.pause_s(row["tries"] + 1)
            await execute(
                connection, SQL["put_off"], queue=queue, pause_s=pause_s, **scope_names(environment)
            )
            return False
        return True


async def _in_time(asked: Awaitable[None]) -> None:
    """Ask the broker for something while rows are locked, for which others wait."""
    try:
        async with asyncio.timeout(_BROKER_S):
            await asked
    except TimeoutError:
        raise Unavailable(f"Redis did not answer within {_BROKER_S:g} s", retry_after_s=1) from None


class Changed(Conflict):
    """The environment changed since it was looked at."""

    def __init__(self, environment: EnvironmentRef, *, expected: int, found: int) -> None:
        super().__init__(
            f"`{environment.environment}` is at revision {found}, and the plan is of revision {expected}; "
            "plan again to see what changed",
            revision=found,
        )


async def begin_change(connection: Connection, environment: EnvironmentRef, *, now_ms: int) -> int:
    """Create the environment if needed, lock it until the transaction ends, and return its next revision."""
    await ensure_environment(connection, environment, now_ms=now_ms)
    row = await fetch_one(connection, SQL["begin_change"], **scope_names(environment))
    assert row is not None
    return int(row["revision"])


async def mark_untold(
    connection: Connection,
    environment: EnvironmentRef,
    queues: Iterable[str],
    *,
    pausing: bool = False,
    pause_s: float = 0.0,
) -> None:
    """Note in the caller's transaction that the broker is to be told about these queues.

    `pausing`: also whether they are paused. `pause_s`: not before this time has passed.
    """
    names: Sequence[str] = sorted(set(queues))
    if names:
        await execute(
            connection,
            SQL["mark_untold"],
            queues=names,
            pausing=pausing,
            pause_s=pause_s,
            **scope_names(environment),
        )
