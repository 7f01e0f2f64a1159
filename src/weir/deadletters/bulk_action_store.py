"""Creates, finds, pauses, resumes and cancels bulk actions; each change is in the audit log."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from psycopg.types.json import Jsonb

from weir.broker.broker import Broker
from weir.channels.consumers import consumer_key, consumer_keys
from weir.control.audit_log import AuditedChange, record
from weir.control.database import Connection, Database, execute
from weir.control.queue_definitions import QueueDefinitions
from weir.control.scopes import scope_names
from weir.deadletters.bulk_action_states import BulkActionState
from weir.deadletters.bulk_actions import (
    BulkAction,
    BulkActionKind,
    CanaryState,
    NewBulkAction,
    action_of,
)
from weir.deadletters.counted import check_dry_run
from weir.deadletters.groups import group_keys
from weir.deadletters.log_selection import LogSelection, NewLogReplay
from weir.deadletters.message_selection import NewCancellation
from weir.deadletters.queries import BULK_ACTIONS
from weir.deadletters.rates import SendLimits
from weir.errors import Conflict, NotFound
from weir.model.clock import Clock, SystemClock
from weir.model.ids import check_id, new_id
from weir.model.inspection import MessageCounts, MessageState
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of


class BulkActionStore:
    """The bulk actions of an environment. Runners do the work; nothing here waits for them."""

    def __init__(self, database: Database, broker: Broker, *, clock: Clock | None = None) -> None:
        self._database = database
        self._broker = broker
        self._clock = clock or SystemClock()

    async def create(self, environment: EnvironmentRef, new: NewBulkAction, *, by: str) -> BulkAction:
        """Fix what the action is about (walk keys and high-water mark) and leave the work to a runner."""
        if new.counted is not None:
            dry = await self.find(environment, new.counted.dry_run)
            unstated = not new.counted.is_stated
            check_dry_run(
                dry,
                new.kind,
                filter=unstated or new.filter == dry.filter,
                patch=unstated or new.patch == dry.patch,
            )
            return await self._start_counted(environment, dry, new.limits, by=by)
        by_group, walk_keys = await self._walk_keys(environment, new)
        action_id = new_id()
        async with self._database.transaction() as connection:
            await execute(
                connection,
                BULK_ACTIONS["create_action"],
                **_columns(new),
                **scope_names(environment),
                id=action_id,
                by_group=by_group,
                walk_keys=walk_keys,
                created_by=by,
                now_ms=self._clock.now_ms(),
            )
            await self._record(connection, environment, by, new.kind.request, action_id, **new.described())
        return await self.find(environment, action_id)

    async def create_cancellation(
        self, environment: EnvironmentRef, new: NewCancellation, *, by: str
    ) -> BulkAction:
        """Fix which messages are meant (none that is enqueued later) and leave the work to a runner."""
        queue = environment.queue(new.selection.queue)
        if new.counted is not None:
            dry = await self.find(environment, new.counted.dry_run)
            counted, unstated = dry.selection, not new.counted.is_stated
            check_dry_run(
                dry,
                BulkActionKind.CANCEL,
                queue=counted is None or counted.queue == new.selection.queue,
                filter=unstated or counted is None or counted.described() == new.selection.described(),
            )
            return await self._start_counted(environment, dry, SendLimits(rate_per_s=new.rate_per_s), by=by)
        counts = await self._broker.count_messages(queue)
        now_ms = await self._broker.now_ms(shard_of(environment, shards=self._broker.shards))
        selection = replace(new.selection, enqueued_to_ms=now_ms - (new.selection.older_than_ms or 0))
        action_id = new_id()
        async with self._database.transaction() as connection:
            await execute(
                connection,
                BULK_ACTIONS["create_cancellation"],
                **scope_names(environment),
                id=action_id,
                dry_run=new.dry_run,
                selection=Jsonb(asdict(selection)),
                rate_per_s=new.rate_per_s,
                walk_keys=selection.walk_keys(),
                expected=_expected(counts, selection.state),
                created_by=by,
                now_ms=self._clock.now_ms(),
            )
            await self._record(
                connection, environment, by, BulkActionKind.CANCEL.request, action_id, **new.described()
            )
        return await self.find(environment, action_id)

    async def create_log_replay(
        self, environment: EnvironmentRef, new: NewLogReplay, *, expected: int, by: str
    ) -> BulkAction:
        """Fix which messages are meant (none that ends later) and leave the work to a runner."""
        await self._broker.state(environment.queue(new.into))
        now_ms = self._clock.now_ms()
        if new.counted is not None:
            dry = await self.find(environment, new.counted.dry_run)
            counted, unstated = dry.log_selection, not new.counted.is_stated
            check_dry_run(
                dry,
                BulkActionKind.REPLAY,
                queue=counted is None or counted.queue == new.selection.queue,
                into=dry.into == new.into,
                filter=unstated or _is_same_span(new.selection, dry),
            )
            return await self._start_counted(environment, dry, new.limits, by=by)
        selection = replace(new.selection, to_ms=min(new.selection.to_ms, now_ms))
        action_id = new_id()
        async with self._database.transaction() as connection:
            await execute(
                connection,
                BULK_ACTIONS["create_log_replay"],
                **scope_names(environment),
                id=action_id,
                dry_run=new.dry_run,
                selection=Jsonb({"log": asdict(selection), "into": new.into}),
                **_limit_columns(new),
                expected=expected,
                created_by=by,
                now_ms=now_ms,
            )
            await self._record(
                connection, environment, by, BulkActionKind.REPLAY.request, action_id, **new.described()
            )
        return await self.find(environment, action_id)

    async def _start_counted(
        self, environment: EnvironmentRef, dry: BulkAction, limits: SendLimits, *, by: str
    ) -> BulkAction:
        """Take what a dry run counted, and nothing that came after it."""
        action_id = new_id()
        state = CanaryState.SENDING if limits.canary else CanaryState.OFF
        details = {"from_dry_run": dry.id, "filter": dry.described_filter(), "patch": dry.patch}
        async with self._database.transaction() as connection:
            await execute(
                connection,
                BULK_ACTIONS["start_counted"],
                id=action_id,
                counted_by=dry.id,
                **limits.columns(),
                canary_state=state,
                created_by=by,
                now_ms=self._clock.now_ms(),
            )
            given = {name: value for name, value in (details | limits.described()).items() if value}
            await self._record(connection, environment, by, dry.kind.request, action_id, **given)
        return await self.find(environment, action_id)

    async def find(self, environment: EnvironmentRef, action_id: str) -> BulkAction:
        checked = check_id(action_id, what="bulk action")
        row = await self._database.fetch_one(
            BULK_ACTIONS["find_action"], id=checked, **scope_names(environment)
        )
        if row is None:
            raise NotFound(f"there is no bulk action `{checked}` here")
        return action_of(row)

    async def newest(self, environment: EnvironmentRef, *, limit: int = 50) -> list[BulkAction]:
        rows = await self._database.fetch(
            BULK_ACTIONS["list_actions"], limit=limit, **scope_names(environment)
        )
        return [action_of(row) for row in rows]

    async def pause(self, environment: EnvironmentRef, action_id: str, *, by: str) -> BulkAction:
        allowed = (BulkActionState.PENDING, BulkActionState.RUNNING)
        return await self._move(environment, action_id, BulkActionState.PAUSED, allowed, by=by)

    async def resume(self, environment: EnvironmentRef, action_id: str, *, by: str) -> BulkAction:
        """Go on. An action that its canary stopped gets a new canary.

        A redrive then begins again, and also takes its own replays that died. A replay from a log goes on
        where it was.
        """
        action = await self.find(environment, action_id)
        if action.state is BulkActionState.STOPPED_BY_CANARY:
            return await self._change(environment, action, BulkActionState.RUNNING, "restart_action", by=by)
        return await self._move(
            environment, action_id, BulkActionState.RUNNING, (BulkActionState.PAUSED,), by=by
        )

    async def cancel(self, environment: EnvironmentRef, action_id: str, *, by: str) -> BulkAction:
        allowed = (BulkActionState.PENDING, BulkActionState.RUNNING, BulkActionState.PAUSED)
        return await self._move(environment, action_id, BulkActionState.CANCELLED, allowed, by=by)

    async def _move(
        self,
        environment: EnvironmentRef,
        action_id: str,
        state: BulkActionState,
        allowed: tuple[BulkActionState, ...],
        *,
        by: str,
    ) -> BulkAction:
        """Bring an action from one of the allowed states into another."""
        return await self._change(
            environment,
            await self.find(environment, action_id),
            state,
            "change_state",
            by=by,
            allowed=[str(one) for one in allowed],
            finished_at_ms=self._clock.now_ms() if state.over else None,
        )

    async def _change(
        self,
        environment: EnvironmentRef,
        action: BulkAction,
        state: BulkActionState,
        query: str,
        *,
        by: str,
        **values: Any,
    ) -> BulkAction:
        values |= {
            "id": action.id,
            "state": state,
            "now_ms": self._clock.now_ms(),
            **scope_names(environment),
        }
        async with self._database.transaction() as connection:
            changed = await execute(connection, BULK_ACTIONS[query], **values)
            if not changed:
                raise Conflict(
                    f"the bulk action `{action.id}` is {action.state}, so it cannot become {state}"
                )
            await self._record(connection, environment, by, f"{action.kind.subject}.task.{state}", action.id)
        return await self.find(environment, action.id)

    async def _walk_keys(self, environment: EnvironmentRef, new: NewBulkAction) -> tuple[bool, list[int]]:
        """The consumers to walk or, with a fingerprint, their groups; and whether they are groups."""
        queue, fingerprint = new.filter.queue, new.filter.fingerprint
        if queue is None:
            consumers = await consumer_keys(self._database, environment)
        else:
            consumers = await self._consumers_of(environment.queue(queue))
        if fingerprint is None:
            return False, consumers
        groups = await group_keys(self._database, environment, fingerprint)
        return True, [group for consumer, group in groups.items() if consumer in set(consumers)]

    async def _consumers_of(self, queue: QueueRef) -> list[int]:
        """The consumer of a queue; none if it never had one. NotFound if neither store knows the queue."""
        key = await consumer_key(self._database, queue)
        if key is not None:
            return [key]
        if not await QueueDefinitions(self._database).defines(queue):
            await self._broker.state(queue)
        return []

    async def _record(
        self,
        connection: Connection,
        environment: EnvironmentRef,
        actor: str,
        action: str,
        target: str,
        **details: Any,
    ) -> None:
        change = AuditedChange.inside(environment, actor=actor, action=action, target=target, **details)
        await record(connection, change, at_ms=self._clock.now_ms())


def _columns(new: NewBulkAction) -> dict[str, Any]:
    own = {"kind": new.kind, "dry_run": new.dry_run, "patch": new.patch}
    return {**own, "filter": Jsonb(asdict(new.filter)), **_limit_columns(new)}


def _limit_columns(new: NewBulkAction | NewLogReplay) -> dict[str, Any]:
    sends_canary = new.limits.canary and not new.dry_run
    state = CanaryState.SENDING if sends_canary else CanaryState.OFF
    return {**new.limits.columns(), "canary_state": state}


def _is_same_span(asked: LogSelection, dry: BulkAction) -> bool:
    """Whether a request states the selection of a dry run, whose span ended when it was asked for."""
    bounded = replace(asked, to_ms=min(asked.to_ms, dry.created_at_ms))
    return bounded == dry.log_selection


def _expected(counts: MessageCounts, state: MessageState | None) -> int:
    """The most messages that a cancellation can look at, as far as the counts tell."""
    # Scheduled and retrying messages wait in one set, and a walk of either state looks at all of it.
    if state in (MessageState.SCHEDULED, MessageState.RETRYING):
        return counts.delayed
    known = {
        MessageState.READY: counts.ready,
        MessageState.BLOCKED: counts.blocked,
        MessageState.LEASED: counts.leased,
    }
    return sum(known.values()) + 2 * counts.delayed if state is None else known[state]
