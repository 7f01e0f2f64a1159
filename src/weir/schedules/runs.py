"""The runs of schedules: recorded in the transaction of their ticks, and followed to their end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from weir.broker.broker import Broker
from weir.control.database import Connection, execute, execute_many, fetch
from weir.deadletters.queries import DEAD_LETTERS
from weir.errors import NotFound
from weir.model.ids import MessageId
from weir.model.limits import MAX_BATCH
from weir.model.names import EnvironmentRef, QueueRef
from weir.operations.model import OperationStatus
from weir.schedules.queries import SQL
from weir.schedules.schedule import RunEnd, Schedule, ScheduleRun, run_of

KEPT_RUNS = 100
"""How many runs of each schedule are kept."""
OPEN_RUNS = 20
"""How many unfinished runs of each schedule are followed. Older ones are given up."""
_NEVER_CAME = {
    OperationStatus.FAILED.value: RunEnd.FAILED,
    OperationStatus.CANCELLED.value: RunEnd.CANCELLED,
}
_UNFINISHED = (OperationStatus.PENDING.value, OperationStatus.PROCESSING.value)


async def record_runs(connection: Connection, runs: Sequence[ScheduleRun]) -> None:
    """Record what became of ticks, and forget old runs of their schedules."""
    if not runs:
        return
    in_order = sorted(runs, key=lambda run: run.tick_ms)
    await execute_many(connection, SQL["put_run"], [_columns(run) for run in in_order])
    ids = sorted({run.schedule_id for run in runs})
    await execute(connection, SQL["forget_runs"], ids=ids, kept=KEPT_RUNS, followed=OPEN_RUNS)


async def find_open_runs(connection: Connection, schedules: Sequence[Schedule]) -> list[ScheduleRun]:
    """The last runs whose messages have not ended, as far as is recorded."""
    ids = [schedule.id for schedule in schedules]
    return [run_of(row) for row in await fetch(connection, SQL["open_runs"], ids=ids, limit=OPEN_RUNS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedRuns:
    """How the messages of some runs ended. Messages of other runs are on their way, wait or are worked on."""

    ended: dict[tuple[str, int], RunEnd]
    """The ends by schedule and tick."""

    def end_of(self, run: ScheduleRun) -> RunEnd | None:
        return run.ended or self.ended.get((run.schedule_id, run.tick_ms))


async def follow_runs(
    connection: Connection, broker: Broker, environment: EnvironmentRef, runs: Sequence[ScheduleRun]
) -> FollowedRuns:
    """Find out how the messages of an environment's runs ended.

    The operation queue is asked first, then the broker, then the dead letters. A message moves in this order,
    and enters the next before it leaves the last. So no message is overlooked.
    """
    states = await _operation_states(connection, runs)
    never_came = {key: _NEVER_CAME[state] for key, state in states.items() if state in _NEVER_CAME}
    waiting = {key for key, state in states.items() if state in _UNFINISHED}
    asked = [
        run for run in runs if _key(run) not in never_came.keys() | waiting and run.message_id is not None
    ]
    left = await _without_held(broker, environment, asked)
    ids = [MessageId(run.message_id or "") for run in left]
    ends = await _ends_of(connection, broker, environment, ids)
    return FollowedRuns(ended=never_came | {_key(run): end for run, end in zip(left, ends, strict=True)})


async def record_ends(connection: Connection, followed: FollowedRuns) -> None:
    """Store how runs ended: dead letters may be purged later, and then nobody would know."""
    if followed.ended:
        await execute(
            connection,
            SQL["end_runs"],
            ids=[schedule for schedule, _ in followed.ended],
            ticks=[tick for _, tick in followed.ended],
            ended=[end.value for end in followed.ended.values()],
        )


async def _ends_of(
    connection: Connection, broker: Broker, environment: EnvironmentRef, ids: Sequence[MessageId]
) -> list[RunEnd]:
    """The ends of messages that the broker does not hold any more."""
    dead = {str(row["id"]) for row in await fetch(connection, DEAD_LETTERS["which_died"], ids=list(ids))}
    living = [one for one in ids if one not in dead]
    asked = zip(living, await broker.were_cancelled(environment, living), strict=True)
    cancelled = {one for one, was_cancelled in asked if was_cancelled}
    return [_end_of(one, dead=dead, cancelled=cancelled) for one in ids]


def _end_of(message_id: MessageId, *, dead: Collection[str], cancelled: Collection[str]) -> RunEnd:
    if message_id in dead:
        return RunEnd.DEAD
    return RunEnd.CANCELLED if message_id in cancelled else RunEnd.ACKED


async def _operation_states(
    connection: Connection, runs: Sequence[ScheduleRun]
) -> dict[tuple[str, int], str]:
    by_operation = {run.operation_id: run for run in runs if run.operation_id is not None}
    if not by_operation:
        return {}
    rows = await fetch(connection, SQL["operation_states"], ids=list(by_operation))
    return {_key(by_operation[str(row["id"])]): row["status"] for row in rows}  # type: ignore[index]


async def _without_held(
    broker: Broker, environment: EnvironmentRef, runs: Sequence[ScheduleRun]
) -> list[ScheduleRun]:
    """The runs whose messages the broker does not hold any more."""
    by_queue: dict[str, list[ScheduleRun]] = defaultdict(list)
    for run in runs:
        by_queue[run.queue].append(run)
    left = []
    for queue, members in by_queue.items():
        for at in range(0, len(members), MAX_BATCH):
            batch = members[at : at + MAX_BATCH]
            held = await _held(broker, environment.queue(queue), batch)
            left += [run for run, one in zip(batch, held, strict=True) if not one]
    return left


async def _held(broker: Broker, queue: QueueRef, runs: Sequence[ScheduleRun]) -> list[bool]:
    try:
        return await broker.holds(queue, [MessageId(run.message_id or "") for run in runs])
    except NotFound:
        # The queue is gone. It was empty then, so its messages have ended.
        return [False] * len(runs)


def _key(run: ScheduleRun) -> tuple[str, int]:
    return run.schedule_id, run.tick_ms


def _columns(run: ScheduleRun) -> dict[str, object]:
    return {
        "schedule_id": run.schedule_id,
        "tick_ms": run.tick_ms,
        "asked": run.asked,
        "outcome": run.outcome.value,
        "ticks": run.ticks,
        "reason": run.reason,
        "queue": run.queue,
        "message_id": run.message_id,
        "operation_id": run.operation_id,
        "at_ms": run.at_ms,
    }
