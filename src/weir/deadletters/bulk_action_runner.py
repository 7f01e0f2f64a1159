"""Works off bulk actions, one batch at a time, each under a claim that is committed before the batch begins.

Any number of runners may run. The claim counts the try, so that a batch that ends its process is counted
too; when its deadline has passed, another runner takes the action over. The batch moves the cursor in the
transaction that ends the claim, so an action goes on where it was. An error of an action is its own affair:
it is put off for ever longer, then given up, and its owner sees why; the others go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace

import structlog

from weir.broker.broker import Broker
from weir.control.audit_log import AuditedChange, record
from weir.control.database import Connection, Database, execute, fetch_one
from weir.control.queue_definitions import QueueDefinitions
from weir.deadletters.bulk_action_batch import Batch, Finish, Work, do_batch
from weir.deadletters.bulk_action_states import BulkActionState
from weir.deadletters.bulk_actions import MAX_SAMPLES, BulkAction, BulkActionKind, CanaryState, action_of
from weir.deadletters.canary import canary_verdict, find_fates, mark_acked, too_deadly
from weir.deadletters.cancel_batch import cancel_batch
from weir.deadletters.log_replay_batch import replay_batch
from weir.deadletters.log_selection import LogSource
from weir.deadletters.loops import repeat
from weir.deadletters.queries import BULK_ACTIONS
from weir.deadletters.replay import Hand
from weir.errors import Unavailable, WarehouseUnavailable
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.backoff import Backoff
from weir.model.clock import Clock, SystemClock
from weir.model.durations import SECOND_MS
from weir.model.ids import new_id
from weir.model.item_loops import ItemPatience, ItemSlots, Setback, attempt

log = structlog.get_logger(__name__)

IDLE_S = 0.25
WATCH_MS = 500
"""How often to look at canaries; each look asks the broker about all of them."""
RETRY_MS = 1_000
"""When to try again if a store that the action needs is out of reach."""
PATIENCE = ItemPatience(tries=5, longest_s=60, backoff=Backoff(first_s=1, longest_s=300, factor=4))
"""Batches in a row that may fail, or end their process, before their action is given up."""
LONGEST_PAUSE_MS = 600 * SECOND_MS
"""No pause lasts longer, except one that keeps to a rate: twice the longest of `PATIENCE`."""
CLAIM_MS = 15 * SECOND_MS
"""When another runner may take over, if the one that works does not renew its claim."""
RENEW_S = CLAIM_MS / SECOND_MS / 3
SLOTS = 4
"""Actions that one process works on at a time."""
SLOTS_EACH = 2
MAX_REMEMBERED = 1_000
"""Organizations whose last turn a runner remembers."""

Advance = Callable[[Connection], Awaitable[BulkAction]]
"""What is left of a step: its writes, and the action after it."""


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
        self._served: OrderedDict[str, None] = OrderedDict()

    async def run(self) -> None:
        """Work for ever, on several actions at a time; while PostgreSQL is out of reach, wait."""
        async with ItemSlots(total=SLOTS, each=SLOTS_EACH) as slots:

            async def fill_a_slot() -> bool:
                while not slots.free:
                    await slots.wait(IDLE_S)
                action = await self._claim(None, passing_over=slots.crowded())
                if action is not None:
                    slots.start(action.environment.organization, self._work_on(action))
                elif slots.free < SLOTS:
                    # An action that is at work may be due again as soon as its batch has ended.
                    await slots.wait(IDLE_S)
                return slots.free < SLOTS

            await repeat(fill_a_slot, idle_s=IDLE_S, waits="bulk actions")

    async def step(self, action_id: str | None = None) -> BulkAction | None:
        """Do one batch of the action whose turn it is, or of a given one; None if none is due."""
        action = await self._claim(action_id)
        return None if action is None else await self._work(action)

    async def _work_on(self, action: BulkAction) -> None:
        await self._work(action)

    async def _claim(self, action_id: str | None, *, passing_over: Sequence[str] = ()) -> BulkAction | None:
        row = await self._database.fetch_one(
            BULK_ACTIONS["claim_action"],
            id=action_id,
            claim=new_id(),
            claim_ms=CLAIM_MS,
            longest_ms=LONGEST_PAUSE_MS,
            now_ms=self._clock.now_ms(),
            busy=list(passing_over),
            served=list(self._served),
        )
        if row is None:
            return None
        self._served[row["organization"]] = None
        self._served.move_to_end(row["organization"])
        if len(self._served) > MAX_REMEMBERED:
            self._served.popitem(last=False)
        return action_of(row)

    async def _work(self, action: BulkAction) -> BulkAction:
        """Do one batch; whatever goes wrong is the action's own setback, which its owner sees."""
        hand = Hand(database=self._database, claim=action.claim or "")

        async def step() -> BulkAction | None:
            keeping = asyncio.create_task(self._keep(action))
            try:
                return await self._save(action, await self._advance(action, hand))
            finally:
                await cancel_and_wait([keeping])

        done = await attempt(step, tries=action.tries, patience=PATIENCE, item=f"bulk action {action.id}")
        if isinstance(done, BulkAction):
            return done
        await hand.open()
        if done is None:
            log.warning("another runner took a bulk action over", action=action.id)
        elif done.given_up:
            return await self._fail(action, note=done.error)
        else:
            await self._put_off(action, done)
        return action

    async def _keep(self, action: BulkAction) -> None:
        """Renew the claim while a batch is at work."""
        while True:
            await asyncio.sleep(RENEW_S)
            with suppress(Unavailable):
                await self._database.execute(
                    BULK_ACTIONS["renew_claim"],
                    id=action.id,
                    claim=action.claim,
                    until_ms=self._clock.now_ms() + CLAIM_MS,
                )

    async def _advance(self, action: BulkAction, hand: Hand) -> Advance:
        now_ms = self._clock.now_ms()
        action = replace(
            action, state=BulkActionState.RUNNING, started_at_ms=action.started_at_ms or now_ms, note=None
        )
        if action.canary_state is CanaryState.WATCHING:
            return await self._watch(action, now_ms=now_ms)
        reason = too_deadly(action) if action.canary_state is CanaryState.PASSED else None
        if reason is not None:
            return _nothing_else(_stopped(action, now_ms=now_ms, note=reason))
        if action.walked >= len(action.walk_keys):
            return _nothing_else(_after_walk(action, now_ms=now_ms))
        work = Work(
            database=self._database,
            broker=self._broker,
            definitions=self._definitions,
            now_ms=now_ms,
            hand=hand,
        )
        finish = await self._do_batch(work, action)

        async def advance(connection: Connection) -> BulkAction:
            return _after_batch(action, await finish(connection), now_ms=now_ms)

        return advance

    async def _do_batch(self, work: Work, action: BulkAction) -> Finish:
        if action.log_selection is not None:
            if self._log is None:
                raise WarehouseUnavailable(
                    "the log is in ClickHouse, and this process has none", retry_after_s=5
                )
            return await replay_batch(work, action, action.log_selection, self._log)
        if action.selection is not None:
            return await cancel_batch(work, action, action.selection)
        return await do_batch(work, action)

    async def _watch(self, action: BulkAction, *, now_ms: int) -> Advance:
        fates = await find_fates(self._database, self._broker, action)
        verdict = canary_verdict(action, fates, now_ms=now_ms)
        after = replace(action, next_at_ms=now_ms + WATCH_MS, note="watching the canaries")
        if verdict.stopped is not None:
            after = _stopped(action, now_ms=now_ms, note=verdict.stopped)
        elif verdict.passed:
            after = replace(action, canary_state=CanaryState.PASSED, next_at_ms=now_ms)

        async def advance(connection: Connection) -> BulkAction:
            await mark_acked(connection, action, fates)
            return after

        return advance

    async def _save(self, action: BulkAction, advance: Advance) -> BulkAction | None:
        """Write down what a step did, and end the claim, in one transaction.

        None if another runner took the action over: it does the same again, under the same keys.
        """
        async with self._database.transaction() as connection:
            held = await fetch_one(connection, BULK_ACTIONS["hold_action"], id=action.id, claim=action.claim)
            if held is None:
                return None
            state = BulkActionState(held["state"])
            if not state.live and action.kind is BulkActionKind.PURGE and not action.dry_run:
                # Its owner paused or ended it meanwhile. A purge deletes only now, so nothing was done yet.
                return await self._release(connection, replace(action, state=state))
            after = await advance(connection)
            if not state.live:
                after = replace(after, state=state, finished_at_ms=held["finished_at_ms"], note=None)
            await _save(connection, after)
            if state.live:
                await self._record_end(connection, after)
            return after

    async def _release(self, connection: Connection, action: BulkAction) -> BulkAction:
        values = {"id": action.id, "claim": action.claim, "note": None, "tries": 0}
        await execute(connection, BULK_ACTIONS["put_off_action"], next_at_ms=self._clock.now_ms(), **values)
        return action

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

    async def _put_off(self, action: BulkAction, setback: Setback) -> None:
        tries, pause_ms, note = action.tries, setback.pause_ms, setback.error
        if setback.counted:
            note = f"try {tries} of {PATIENCE.tries} failed and is repeated: {note}"
        else:
            tries, pause_ms = tries - 1, RETRY_MS
        await self._database.execute(
            BULK_ACTIONS["put_off_action"],
            id=action.id,
            claim=action.claim,
            next_at_ms=self._clock.now_ms() + pause_ms,
            note=note,
            tries=tries,
        )

    async def _fail(self, action: BulkAction, *, note: str) -> BulkAction:
        now_ms = self._clock.now_ms()
        async with self._database.transaction() as connection:
            row = await fetch_one(
                connection,
                BULK_ACTIONS["fail_action"],
                id=action.id,
                claim=action.claim,
                note=note,
                now_ms=now_ms,
            )
            if row is None:
                return action
            after = replace(action, state=BulkActionState(row["state"]), note=note, finished_at_ms=now_ms)
            if after.state is BulkActionState.FAILED:
                await self._record_end(connection, after)
        return after


def _nothing_else(action: BulkAction) -> Advance:
    async def advance(_: Connection) -> BulkAction:
        return action

    return advance


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


def _stopped(action: BulkAction, *, now_ms: int, note: str) -> BulkAction:
    failed = replace(action, canary_state=CanaryState.FAILED)
    return _ended(failed, BulkActionState.STOPPED_BY_CANARY, now_ms=now_ms, note=note)


def _ended(action: BulkAction, state: BulkActionState, *, now_ms: int, note: str | None) -> BulkAction:
    return replace(action, state=state, finished_at_ms=now_ms, note=note)


async def _save(connection: Connection, action: BulkAction) -> None:
    values = {one.name: getattr(action, one.name) for one in fields(action)}
    # PostgreSQL takes lists as arrays, and tuples as rows.
    lists = {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
    await execute(connection, BULK_ACTIONS["save_action"], **values | lists)
