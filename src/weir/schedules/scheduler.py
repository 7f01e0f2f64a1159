"""Pushes the ticks that are due. Every process runs a scheduler; a tick goes out once, whichever one dies.

A round chooses schedules that are due, environments in turns, and writes them down. Then, one environment
after the other, it locks them, pushes their ticks, and records the ticks and how far the schedules are in the
same transaction. If the transaction is lost after a push, the next round pushes the same ticks under the same
ids and idempotency keys, and the queues drop them as duplicates. A round passes over schedules that another
process has locked. If that process freezes, PostgreSQL ends its transaction and its locks after `FROZEN_S`.

An error that nobody foresaw puts off the schedule that it belongs to. A round whose process ended leaves what
it had written down, so each of its schedules is tried alone then. After `PATIENCE.tries` it is paused.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from weir.broker.broker import Broker
from weir.control.database import Connection, Database, Row, execute, fetch
from weir.control.scopes import scope_of
from weir.control.system_events import SystemEvent
from weir.errors import ControlUnavailable, KeyReused, Unavailable, WeirError
from weir.exchange.seam import PushAnswer, Pushed, Pusher, Queued
from weir.model.backoff import Backoff
from weir.model.clock import Clock
from weir.model.durations import SECOND_MS
from weir.model.holders import HOLDER
from weir.model.ids import new_id
from weir.model.item_loops import ItemPatience, is_own_end, text_of
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.schedules.decide import SkippedTicks, decide_ticks
from weir.schedules.queries import SQL
from weir.schedules.register import due_of
from weir.schedules.runs import FollowedRuns, find_open_runs, follow_runs, record_ends, record_runs
from weir.schedules.schedule import RunOutcome, Schedule, ScheduleRun, schedule_of
from weir.schedules.ticks import tick_item
from weir.spec.ir import Overlap
from weir.spec.timing import next_ticks

log = structlog.get_logger(__name__)

BATCH = 50
"""The most schedules in one round."""
WINDOW = 10_000
"""How many due schedules are looked at to let environments take turns."""
PATIENCE = ItemPatience(tries=5, longest_s=15.0, backoff=Backoff(first_s=1.0, longest_s=30.0))
"""How often a schedule is tried whose round fails as nobody foresaw, or ends its process."""
LOOK_EVERY_S = 1.0
"""The longest sleep of a process: another process may have made a schedule."""
WORKED_ON_S = 0.25
"""How long to sleep while another process works on the ticks that are due."""
FROZEN_S = 20.0
"""PostgreSQL ends a transaction that is silent for longer. Then other processes may push its ticks."""
LOST_MS = 30 * SECOND_MS
"""A round that began so long ago is lost: its process has ended or hangs."""
COUNT_LOST_EVERY_S = 5.0
RETRY = Backoff(first_s=1.0, longest_s=30.0)
"""Pauses before a tick that its queue did not take is tried again."""
OVERLAPS = "the message of the tick before is not done"


@dataclass(slots=True, kw_only=True)
class _Due:
    """A schedule in a round: which ticks go out, and what became of them."""

    schedule: Schedule
    push: list[int] = field(default_factory=list)
    asked_ms: int | None = None
    """The tick that somebody asked for, if it goes out in this round."""
    skipped: list[SkippedTicks] = field(default_factory=list)
    until_ms: int = 0
    runs: list[ScheduleRun] = field(default_factory=list)
    refused: WeirError | None = None
    """Why its ticks must be tried again later."""


class Scheduler:
    """Pushes due ticks. Each process runs one scheduler."""

    def __init__(self, database: Database, broker: Broker, pusher: Pusher, *, clock: Clock) -> None:
        self._database = database
        self._broker = broker
        self._pusher = pusher
        self._clock = clock
        self._woken = asyncio.Event()
        self._away: dict[int, Unavailable] = {}
        """The broker's error in this round, by shard. It is not asked again, or each schedule would wait."""
        self._counted_lost_s = float("-inf")

    async def run(self) -> None:
        """Push ticks until cancelled; while PostgreSQL is out of reach, wait and try again."""
        # Other loops want their first connections now, and ticks can wait for a second.
        await self._sleep(LOOK_EVERY_S)
        while True:
            self._woken.clear()
            try:
                pause_s = 0.0 if await self.run_round() == BATCH else await self._pause_s()
            except WeirError as error:
                log.warning("schedules wait", error=str(error))
                pause_s = LOOK_EVERY_S
            if pause_s:
                await self._sleep(pause_s)

    async def wake(self, _: SystemEvent) -> None:
        """Look at once: a schedule was changed, or a run was asked for."""
        self._woken.set()

    async def run_round(self) -> int:
        """Push the ticks that are due now, of at most `BATCH` schedules; returns the number of schedules.

        Then the same for schedules that failed before, each alone.
        """
        self._away = {}
        await self._count_lost()
        served = await self._round("begin_round", limit=BATCH)
        for _ in range(BATCH):
            if not await self._round("begin_round_alone", limit=1):
                break
        return served

    async def _round(self, begin: str, *, limit: int) -> int:
        number, now_ms = new_id(), self._clock.now_ms()
        rows = await self._database.fetch(SQL[begin], round=number, now_ms=now_ms, limit=limit, window=WINDOW)
        if not rows:
            return 0
        by_environment: dict[EnvironmentRef, list[str]] = defaultdict(list)
        for row in rows:
            by_environment[scope_of(row)].append(str(row["id"]))
        served = [await self._try(environment, ids) for environment, ids in by_environment.items()]
        await self._database.execute(SQL["end_round"], round=number)
        return sum(served)

    async def _count_lost(self) -> None:
        """Count a try of each schedule whose round was lost."""
        if time.monotonic() - self._counted_lost_s > COUNT_LOST_EVERY_S:
            self._counted_lost_s = time.monotonic()
            before_ms = self._clock.now_ms() - LOST_MS
            await self._database.execute(SQL["count_lost_rounds"], before_ms=before_ms)

    async def _try(self, environment: EnvironmentRef, ids: Sequence[str]) -> int:
        """Serve an environment's schedules. If that fails as nobody foresaw, serve each of them alone."""
        try:
            return await self._serve_locked(environment, ids)
        except ControlUnavailable:
            raise
        except BaseException as error:
            if is_own_end(error):
                raise
            hung = isinstance(error, TimeoutError)
            if len(ids) > 1 and not hung:
                return sum([await self._try(environment, [one]) for one in ids])
            log.exception("schedules could not be served", environment=environment.environment)
            problem = "its ticks took too long to push" if hung else text_of(error)
            for schedule_id in ids:
                await self._put_off(schedule_id, problem)
            return len(ids)

    async def _serve_locked(self, environment: EnvironmentRef, ids: Sequence[str]) -> int:
        async with (
            asyncio.timeout(PATIENCE.longest_s),
            self._database.transaction(idle_s=FROZEN_S) as connection,
        ):
            now_ms = self._clock.now_ms()
            rows = await fetch(connection, SQL["lock_due"], ids=list(ids), now_ms=now_ms)
            ended = [row for row in rows if row["tries"] >= PATIENCE.tries]
            for row in ended:
                await self._give_up(connection, row, now_ms=now_ms)
            schedules = [schedule_of(row) for row in rows if row not in ended]
            if schedules:
                await self._serve(connection, environment, schedules, now_ms=now_ms)
        return len(rows)

    async def _give_up(self, connection: Connection, row: Row, *, now_ms: int) -> None:
        """Pause a schedule that had all of its tries. Its owner sees why, and may resume it."""
        why = row["problem"] or "the process that worked on it ended each time"
        problem = f"paused after {PATIENCE.tries} tries: {why}"
        log.error("a schedule is paused", schedule=row["name"], problem=problem)
        await execute(
            connection,
            SQL["put_off"],
            id=row["id"],
            tries=0,
            problem=problem,
            paused=True,
            due_ms=now_ms,
            now_ms=now_ms,
        )

    async def _put_off(self, schedule_id: str, problem: str) -> None:
        """Count a try, and try again after a pause."""
        async with self._database.transaction() as connection:
            now_ms = self._clock.now_ms()
            for row in await fetch(connection, SQL["lock_due"], ids=[schedule_id], now_ms=now_ms):
                tries = row["tries"] + 1
                if tries >= PATIENCE.tries:
                    await self._give_up(connection, {**row, "problem": problem}, now_ms=now_ms)
                    continue
                await execute(
                    connection,
                    SQL["put_off"],
                    id=row["id"],
                    tries=tries,
                    problem=problem,
                    paused=False,
                    due_ms=now_ms + PATIENCE.pause_ms(tries),
                    now_ms=now_ms,
                )

    async def _pause_s(self) -> float:
        row = await self._database.fetch_one(SQL["next_due"])
        if row is None or row["due_ms"] is None:
            return LOOK_EVERY_S
        left_s = (row["due_ms"] - self._clock.now_ms()) / SECOND_MS
        return min(LOOK_EVERY_S, left_s) if left_s > 0 else WORKED_ON_S

    async def _sleep(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _serve(
        self,
        connection: Connection,
        environment: EnvironmentRef,
        schedules: Sequence[Schedule],
        *,
        now_ms: int,
    ) -> None:
        """Push the ticks of an environment's schedules and record them."""
        due = [_decided(schedule, now_ms=now_ms) for schedule in schedules]
        await self._mind_overlaps(connection, environment, due)
        await self._push(environment, due, now_ms=now_ms)
        for one in due:
            after = _position(one)
            one.runs += [
                _skipped_run(one.schedule, ticks, now_ms=now_ms)
                for ticks in one.skipped
                if ticks.last_ms <= after.last_tick_ms
            ]
            await _advance(connection, after, now_ms=now_ms)
        await record_runs(connection, [run for one in due for run in one.runs])

    async def _mind_overlaps(
        self, connection: Connection, environment: EnvironmentRef, due: Sequence[_Due]
    ) -> None:
        """Note how earlier runs ended. While one has not, a schedule with `overlap: skip` skips its ticks."""
        open_runs = await find_open_runs(connection, [one.schedule for one in due])
        followed = await self._follow(connection, environment, open_runs)
        busy = {run.schedule_id for run in open_runs if followed.end_of(run) is None}
        for one in due:
            if one.schedule.spec.overlap is Overlap.SKIP and one.refused is None:
                away = self._away.get(self._shard(environment))
                if away is not None and one.push and one.schedule.id in busy:
                    one.refused = away
                else:
                    _skip_overlaps(one, busy=one.schedule.id in busy)

    async def _follow(
        self, connection: Connection, environment: EnvironmentRef, runs: Sequence[ScheduleRun]
    ) -> FollowedRuns:
        """Find out how runs ended, and record it; nothing is found while the broker is away."""
        shard = self._shard(environment)
        if not runs or shard in self._away:
            return FollowedRuns(ended={})
        try:
            followed = await follow_runs(connection, self._broker, environment, runs)
        except Unavailable as error:
            self._away[shard] = error
            return FollowedRuns(ended={})
        await record_ends(connection, followed)
        return followed

    def _shard(self, environment: EnvironmentRef) -> int:
        return shard_of(environment, shards=self._broker.shards)

    async def _push(self, environment: EnvironmentRef, due: Sequence[_Due], *, now_ms: int) -> None:
        ticks = [(one, tick) for one in due if one.refused is None for tick in _in_order(one)]
        if not ticks:
            return
        token = HOLDER.set(environment.holder)
        try:
            answers = await self._pusher.push([tick_item(one.schedule, tick) for one, tick in ticks])
        except WeirError as error:
            for one, _ in ticks:
                one.refused = error
            return
        finally:
            HOLDER.reset(token)
        for (one, tick), answer in zip(ticks, answers, strict=True):
            _note_answer(one, tick, answer, now_ms=now_ms)


def _decided(schedule: Schedule, *, now_ms: int) -> _Due:
    """Decide the due ticks of a schedule. If they cannot be computed any more, the error is its problem."""
    due = _Due(schedule=schedule, asked_ms=schedule.asked_ms, until_ms=schedule.last_tick_ms)
    if schedule.paused:
        return due
    try:
        decided = decide_ticks(schedule, now_ms=now_ms)
    except WeirError as error:
        due.refused = error
        return due
    due.push, due.skipped, due.until_ms = list(decided.push), list(decided.skipped), decided.until_ms
    return due


def _skip_overlaps(due: _Due, *, busy: bool) -> None:
    """Let at most one tick go out, and none while the run before is not done."""
    dropped = due.push if busy else due.push[1:]
    if dropped:
        due.push = [] if busy else due.push[:1]
        due.skipped.append(SkippedTicks(last_ms=dropped[-1], count=len(dropped), reason=OVERLAPS))


def _in_order(due: _Due) -> Iterable[int]:
    return sorted({*due.push, *([] if due.asked_ms is None else [due.asked_ms])})


def _note_answer(due: _Due, tick_ms: int, answer: PushAnswer, *, now_ms: int) -> None:
    """Note the run of a tick. If a retry can help, note instead that this and later ticks must be retried."""
    if due.refused is not None:
        return
    item = tick_item(due.schedule, tick_ms)
    run = ScheduleRun(
        schedule_id=due.schedule.id,
        tick_ms=tick_ms,
        outcome=RunOutcome.PUSHED,
        queue=due.schedule.spec.queue,
        at_ms=now_ms,
        asked=tick_ms == due.asked_ms,
        message_id=item.message.id,
        operation_id=answer.operation_id if isinstance(answer, Queued) else None,
    )
    # A reused key means that the tick went out before with another payload, and its record was lost.
    if isinstance(answer, (Pushed, Queued)) or isinstance(answer.error, KeyReused):
        due.runs.append(run)
    elif answer.error.retryable:
        due.refused = answer.error
    else:
        reason = f"{answer.error.code}: {answer.error}"
        due.runs.append(replace(run, outcome=RunOutcome.FAILED, reason=reason, message_id=None))


def _skipped_run(schedule: Schedule, ticks: SkippedTicks, *, now_ms: int) -> ScheduleRun:
    return ScheduleRun(
        schedule_id=schedule.id,
        tick_ms=ticks.last_ms,
        outcome=RunOutcome.SKIPPED,
        queue=schedule.spec.queue,
        at_ms=now_ms,
        ticks=ticks.count,
        reason=ticks.reason,
    )


def _position(due: _Due) -> Schedule:
    """The schedule after this round: behind its last decided tick, but in front of a refused one."""
    schedule, done = due.schedule, {run.tick_ms for run in due.runs}
    left = [tick for tick in due.push if due.refused is not None and tick not in done]
    return replace(
        schedule,
        last_tick_ms=left[0] - 1 if left else due.until_ms,
        asked_ms=None if schedule.asked_ms in done else schedule.asked_ms,
        refused_ms=left[0] if left else None,
        refusals=0 if due.refused is None else schedule.refusals + 1,
        problem=None if due.refused is None else f"{due.refused.code}: {due.refused}",
    )


async def _advance(connection: Connection, after: Schedule, *, now_ms: int) -> None:
    pause_ms = round(RETRY.pause_s(after.refusals) * SECOND_MS) if after.refusals else 0
    retry_at_ms = now_ms + pause_ms if pause_ms else 0
    try:
        found = next_ticks(after.spec.timing, after.last_tick_ms, 1)
        after = replace(after, next_tick_ms=found[0] if found else None)
    except WeirError:
        # Its time zone is not known any more. The next tick stays, and the problem says why it does not come.
        pass
    await execute(
        connection,
        SQL["advance"],
        id=after.id,
        last_tick_ms=after.last_tick_ms,
        next_tick_ms=after.next_tick_ms,
        asked_ms=after.asked_ms,
        refused_ms=after.refused_ms,
        refusals=after.refusals,
        problem=after.problem,
        due_ms=due_of(after, retry_at_ms=retry_at_ms),
    )
