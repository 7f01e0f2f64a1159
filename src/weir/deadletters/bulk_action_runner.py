"""Works redrives and purges off, a small transaction at a time.

Whoever locks the task's row does its next batch, and the batch moves the cursor in its own transaction. So
any number of runners may run, and a task goes on where it was when one of them is killed.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from weir.broker.broker import Broker
from weir.control.audit_log import AuditedChange, record
from weir.control.database import Connection, Database, execute, fetch_one
from weir.control.queue_definitions import QueueDefinitions
from weir.deadletters.bulk_action_batch import Batch, Work, do_batch
from weir.deadletters.bulk_action_store import SQL
from weir.deadletters.bulk_actions import BulkAction, BulkActionState, CanaryState, task_of_row
from weir.deadletters.canary import fates_of, judge, too_deadly
from weir.errors import ControlUnavailable, Unavailable, WeirError
from weir.model.clock import Clock, SystemClock

log = structlog.get_logger(__name__)

IDLE_S = 0.25
WATCH_MS = 500
RETRY_MS = 1_000


class BulkActionRunner:
    """Run one in every process."""

    def __init__(self, broker: Broker, database: Database, *, clock: Clock | None = None) -> None:
        self._broker = broker
        self._database = database
        self._definitions = QueueDefinitions(database)
        self._clock = clock or SystemClock()

    async def run(self) -> None:
        """Work for ever; while PostgreSQL is out of reach, wait and try again."""
        while True:
            try:
                worked = await self.step()
            except WeirError as error:
                log.warning("dead-letter tasks wait", error=str(error))
                worked = None
            if worked is None:
                await asyncio.sleep(IDLE_S)

    async def step(self, task_id: str | None = None) -> BulkAction | None:
        """One batch of the task that is due longest, or of a given one; None if none is due."""
        claimed: BulkAction | None = None
        try:
            async with self._database.transaction() as connection:
                now_ms = self._clock.now_ms()
                row = await fetch_one(connection, SQL["claim_task"], now_ms=now_ms, id=task_id)
                if row is None:
                    return None
                claimed = task_of_row(row)
                task = await self._advanced(connection, claimed, now_ms=now_ms)
                await _save(connection, task)
                await self._record_end(connection, task)
                return task
        except ControlUnavailable:
            raise
        except Unavailable as error:
            await self._postpone(claimed, error)
            return claimed
        except WeirError as error:
            await self._fail(claimed, error)
            return claimed

    async def _advanced(self, connection: Connection, task: BulkAction, *, now_ms: int) -> BulkAction:
        task = replace(
            task, state=BulkActionState.RUNNING, started_at_ms=task.started_at_ms or now_ms, note=None
        )
        if task.canary_state is CanaryState.WATCHING:
            return await self._watched(connection, task, now_ms=now_ms)
        reason = too_deadly(task) if task.canary_state is CanaryState.PASSED else None
        if reason is not None:
            return _ended(task, BulkActionState.STOPPED_BY_CANARY, now_ms=now_ms, note=reason)
        if task.lane >= len(task.lanes):
            return _walked(task, now_ms=now_ms)
        work = Work(connection=connection, broker=self._broker, definitions=self._definitions, now_ms=now_ms)
        batch = await do_batch(work, task)
        return _after(task, batch, now_ms=now_ms)

    async def _watched(self, connection: Connection, task: BulkAction, *, now_ms: int) -> BulkAction:
        verdict = judge(task, await fates_of(connection, self._broker, task), now_ms=now_ms)
        if verdict.stopped is not None:
            return _ended(task, BulkActionState.STOPPED_BY_CANARY, now_ms=now_ms, note=verdict.stopped)
        if verdict.passed:
            return replace(task, canary_state=CanaryState.PASSED, next_at_ms=now_ms)
        return replace(task, next_at_ms=now_ms + WATCH_MS, note="watching the canaries")

    async def _record_end(self, connection: Connection, task: BulkAction) -> None:
        if task.state.over:
            change = AuditedChange.inside(
                task.environment,
                actor=task.created_by,
                action=f"dlq.task.{task.state}",
                target=task.id,
                done=task.done,
                matched=task.matched,
            )
            await record(connection, change, at_ms=self._clock.now_ms())

    async def _postpone(self, task: BulkAction | None, error: WeirError) -> None:
        if task is not None:
            next_at_ms = self._clock.now_ms() + RETRY_MS
            await self._database.execute(
                SQL["postpone_task"], id=task.id, next_at_ms=next_at_ms, note=error.message
            )

    async def _fail(self, task: BulkAction | None, error: WeirError) -> None:
        if task is None:
            raise error
        log.warning("a dead-letter task failed", task=task.id, error=error.message)
        await self._database.execute(
            SQL["fail_task"], id=task.id, note=error.message, now_ms=self._clock.now_ms()
        )


def _after(task: BulkAction, batch: Batch, *, now_ms: int) -> BulkAction:
    """The task as a batch leaves it."""
    task = replace(
        task,
        lane=task.lane + 1 if batch.lane_walked else task.lane,
        after_enqueued_at_ms=-1 if batch.lane_walked else batch.after_enqueued_at_ms,
        after_id=batch.after_id,
        scanned=task.scanned + batch.scanned,
        matched=task.matched + batch.matched,
        done=task.done + batch.done,
        skipped=task.skipped + batch.skipped,
        samples=(task.samples + batch.samples)[:10],
        note=batch.note,
        problem=batch.problem or task.problem,
        next_at_ms=now_ms + batch.delay_ms,
    )
    if task.canary_state is CanaryState.SENDING:
        task = replace(task, canary_ids=task.canary_ids + batch.replayed)
        if len(task.canary_ids) >= task.canary:
            return replace(task, canary_state=CanaryState.WATCHING, canary_since_ms=now_ms)
    return task


def _walked(task: BulkAction, *, now_ms: int) -> BulkAction:
    """Every lane is done; canaries that were sent must still be heard of."""
    if task.canary_state is CanaryState.SENDING and task.canary_ids:
        return replace(task, canary_state=CanaryState.WATCHING, canary_since_ms=now_ms)
    return _ended(task, BulkActionState.COMPLETED, now_ms=now_ms, note=task.note)


def _ended(task: BulkAction, state: BulkActionState, *, now_ms: int, note: str | None) -> BulkAction:
    return replace(task, state=state, finished_at_ms=now_ms, note=note)


async def _save(connection: Connection, task: BulkAction) -> None:
    await execute(
        connection,
        SQL["save_task"],
        id=task.id,
        state=task.state,
        canary_state=task.canary_state,
        canary_ids=list(task.canary_ids),
        canary_since_ms=task.canary_since_ms,
        lane=task.lane,
        after_enqueued_at_ms=task.after_enqueued_at_ms,
        after_id=task.after_id,
        scanned=task.scanned,
        matched=task.matched,
        done=task.done,
        skipped=task.skipped,
        samples=list(task.samples),
        note=task.note,
        problem=task.problem,
        started_at_ms=task.started_at_ms,
        finished_at_ms=task.finished_at_ms,
        next_at_ms=task.next_at_ms,
    )
