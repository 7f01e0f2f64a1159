"""Works off bulk actions, one small transaction at a time.

The runner that locks an action's row does its next batch, and the batch moves the cursor in the same
transaction. So any number of runners may run, and an action goes on where it was if one of them is killed.
"""

from __future__ import annotations

from dataclasses import fields, replace

import structlog

from weir.broker.broker import Broker
from weir.control.audit_log import AuditedChange, record
from weir.control.database import Connection, Database, execute, fetch_one
from weir.control.queue_definitions import QueueDefinitions
from weir.deadletters.bulk_action_batch import Batch, Work, do_batch
from weir.deadletters.bulk_action_states import BulkActionState
from weir.deadletters.bulk_actions import MAX_SAMPLES, BulkAction, CanaryState, action_of
from weir.deadletters.canary import canary_verdict, find_fates, too_deadly
from weir.deadletters.cancel_batch import cancel_batch
from weir.deadletters.log_replay_batch import replay_batch
from weir.deadletters.log_selection import LogSource
from weir.deadletters.loops import repeat
from weir.deadletters.queries import BULK_ACTIONS
from weir.errors import ControlUnavailable, Unavailable, WarehouseUnavailable, WeirError
from weir.model.clock import Clock, SystemClock

log = structlog.get_logger(__name__)

IDLE_S = 0.25
WATCH_MS = 500
"""How often to look at canaries; each look asks the broker about all of them."""
RETRY_MS = 1_000
"""When to try again if a store that the action needs is out of reach."""


class BulkActionRunner:
    """Run one in every process."""

    def __init__(
        self,
        broker: Broker,
        database: Database,
        *,
        log: LogSource | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._broker = broker
        self._log = log
        self._database = database
        self._definitions = QueueDefinitions(database)
        self._clock = clock or SystemClock()

    async def run(self) -> None:
        """Work for ever; while PostgreSQL is out of reach, wait and try again."""
        await repeat(self.step, idle_s=IDLE_S, waits="bulk actions")

    async def step(self, action_id: str | None = None) -> BulkAction | None:
        """Do one batch of the action that is due longest, or of a given one; None if none is due."""
        claimed: BulkAction | None = None
        try:
            async with self._database.transaction() as connection:
                now_ms = self._clock.now_ms()
                row = await fetch_one(connection, BULK_ACTIONS["claim_action"], now_ms=now_ms, id=action_id)
                if row is None:
                    return None
                claimed = action_of(row)
                action = await self._advance(connection, claimed, now_ms=now_ms)
                await _save(connection, action)
                await self._record_end(connection, action)
                return action
        except ControlUnavailable:
            raise
        except Unavailable as error:
            await self._postpone(claimed, error)
            return claimed
        except WeirError as error:
            await self._fail(claimed, error)
            return claimed

    async def _advance(self, connection: Connection, action: BulkAction, *, now_ms: int) -> BulkAction:
        action = replace(
            action, state=BulkActionState.RUNNING, started_at_ms=action.started_at_ms or now_ms, note=None
        )
        if action.canary_state is CanaryState.WATCHING:
            return await self._watch(connection, action, now_ms=now_ms)
        reason = too_deadly(action) if action.canary_state is CanaryState.PASSED else None
        if reason is not None:
            return _ended(action, BulkActionState.STOPPED_BY_CANARY, now_ms=now_ms, note=reason)
        if action.walked >= len(action.walk_keys):
            return _after_walk(action, now_ms=now_ms)
        work = Work(connection=connection, broker=self._broker, definitions=self._definitions, now_ms=now_ms)
        batch = await self._do_batch(work, action)
        return _after_batch(action, batch, now_ms=now_ms)

    async def _do_batch(self, work: Work, action: BulkAction) -> Batch:
        if action.log_selection is not None:
            if self._log is None:
                raise WarehouseUnavailable(
                    "the log is in ClickHouse, and this process has none", retry_after_s=5
                )
            return await replay_batch(work, action, action.log_selection, self._log)
        if action.selection is not None:
            return await cancel_batch(work, action, action.selection)
        return await do_batch(work, action)

    async def _watch(self, connection: Connection, action: BulkAction, *, now_ms: int) -> BulkAction:
        verdict = canary_verdict(action, await find_fates(connection, self._broker, action), now_ms=now_ms)
        if verdict.stopped is not None:
            return _ended(action, BulkActionState.STOPPED_BY_CANARY, now_ms=now_ms, note=verdict.stopped)
        if verdict.passed:
            return replace(action, canary_state=CanaryState.PASSED, next_at_ms=now_ms)
        return replace(action, next_at_ms=now_ms + WATCH_MS, note="watching the canaries")

    async def _record_end(self, connection: Connection, action: BulkAction) -> None:
        if action.state.over:
            change = AuditedChange.inside(
                action.environment,
                actor=action.created_by,
                action=f"{action.kind.subject}.task.{action.state}",
                target=action.id,
                done=action.done,
                matched=action.matched,
            )
            await record(connection, change, at_ms=self._clock.now_ms())

    async def _postpone(self, action: BulkAction | None, error: WeirError) -> None:
        if action is not None:
            next_at_ms = self._clock.now_ms() + RETRY_MS
            await self._database.execute(
                BULK_ACTIONS["postpone_action"], id=action.id, next_at_ms=next_at_ms, note=error.message
            )

    async def _fail(self, action: BulkAction | None, error: WeirError) -> None:
        if action is None:
            raise error
        log.warning("a bulk action failed", action=action.id, error=error.message)
        await self._database.execute(
            BULK_ACTIONS["fail_action"], id=action.id, note=error.message, now_ms=self._clock.now_ms()
        )


def _after_batch(action: BulkAction, batch: Batch, *, now_ms: int) -> BulkAction:
    """The action after a batch."""
    action = replace(
        action,
        walked=action.walked + batch.key_done,
        after_enqueued_at_ms=-1 if batch.key_done else batch.after_enqueued_at_ms,
        after_id=batch.after_id,
        cursor=batch.cursor,
        scanned=action.scanned + batch.scanned,
        matched=action.matched + batch.matched,
        done=action.done + batch.done,
        skipped=action.skipped + batch.skipped,
        samples=(action.samples + batch.samples)[:MAX_SAMPLES],
        note=batch.note,
        problem=batch.problem or action.problem,
        next_at_ms=now_ms + batch.delay_ms,
    )
    if action.canary_state is CanaryState.SENDING:
        action = replace(action, canary_ids=action.canary_ids + batch.replayed)
        if len(action.canary_ids) >= action.canary:
            return replace(action, canary_state=CanaryState.WATCHING, canary_since_ms=now_ms)
    return action


def _after_walk(action: BulkAction, *, now_ms: int) -> BulkAction:
    """The action after its last walk key: complete, unless canaries that it sent are undecided."""
    if action.canary_state is CanaryState.SENDING and action.canary_ids:
        return replace(action, canary_state=CanaryState.WATCHING, canary_since_ms=now_ms)
    return _ended(action, BulkActionState.COMPLETED, now_ms=now_ms, note=action.note)


def _ended(action: BulkAction, state: BulkActionState, *, now_ms: int, note: str | None) -> BulkAction:
    return replace(action, state=state, finished_at_ms=now_ms, note=note)


async def _save(connection: Connection, action: BulkAction) -> None:
    values = {one.name: getattr(action, one.name) for one in fields(action)}
    # PostgreSQL takes lists as arrays, and tuples as rows.
    lists = {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
    await execute(connection, BULK_ACTIONS["save_action"], **values | lists)
