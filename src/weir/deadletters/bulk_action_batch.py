"""One batch of a task: read a window of its lane, pick the letters that are meant, and deal with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weir.broker.broker import Broker
from weir.control.database import Connection, Row, fetch
from weir.control.queue_definitions import QueueDefinitions
from weir.control.sql import NamedQuery
from weir.deadletters.bulk_actions import NIL, BulkAction, BulkActionKind, CanaryState
from weir.deadletters.dead_letter import SQL, DeadLetter, letter_of, lock_letters
from weir.deadletters.filters import compile_known, predicate
from weir.deadletters.patch import Patch, compile_patch
from weir.deadletters.replay import Replays, delete, replay, unsendable
from weir.deadletters.summary import DeadTally, apply_tally
from weir.errors import InvalidInput
from weir.model.limits import MAX_BATCH, MAX_HEADER_BYTES
from weir.model.names import QueueRef

FULL_DELAY_MS = 1_000
PACE_MS = 500
"""A limited task works about this often, each time on that share of its rate."""
DELETE_BATCH = 1_000
COUNT_BATCH = 5_000
LARGE_ENVELOPE = MAX_HEADER_BYTES - 4_096
"""Headers that a replay's own might bring over the limit. A smaller envelope needs no closer look."""

WINDOWS = (SQL["window_by_consumer"], SQL["window_by_group"])
PURGES = (SQL["purge_by_consumer"], SQL["purge_by_group"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a batch did and where it stopped."""

    scanned: int = 0
    matched: int = 0
    done: int = 0
    skipped: int = 0
    replayed: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    after_enqueued_at_ms: int = -1
    after_id: str = NIL
    lane_walked: bool = False
    delay_ms: int = 0
    note: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """The rows of a window that are meant, and what the expression had no answer for."""

    rows: list[Row]
    unanswered: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Who does a batch, with what."""

    connection: Connection
    broker: Broker
    definitions: QueueDefinitions
    now_ms: int


async def do_batch(work: Work, task: BulkAction) -> Batch:
    """One small step of a task's current lane, in the transaction of `work`."""
    if task.kind is BulkActionKind.PURGE and not task.dry_run and task.filter.expression is None:
        return await _purged(work, task)
    window = await _window(work.connection, task)
    if not window:
        return Batch(lane_walked=True)
    meant = await _meant(work.connection, task, window)
    taken = meant.rows[: _room(task)]
    # Past the whole window, unless what is meant had to be cut off.
    last = window[-1] if len(taken) == len(meant.rows) else taken[-1]
    batch = _reached(window, last, matched=len(taken), samples=taken)
    if last is window[-1]:
        batch = replace(batch, skipped=meant.unanswered, problem=meant.problem)
    if not taken:
        return batch
    if task.dry_run:
        return await _try_out(work, task, taken, batch)
    if task.kind is BulkActionKind.PURGE:
        done = await delete(work.connection, [row["id"] for row in taken], now_ms=work.now_ms)
        return replace(batch, done=done, delay_ms=_pause_ms(task, done))
    return await _redriven(work, task, window, taken, batch)


async def _purged(work: Work, task: BulkAction) -> Batch:
    """Deleting by plain fields takes one statement, and no letter leaves PostgreSQL."""
    rows = await _asked(work.connection, task, PURGES[task.by_group], limit=_room(task))
    if not rows:
        return Batch(lane_walked=True)
    tally = DeadTally()
    for row in rows:
        if row["letters"]:
            tally.consumers[row["consumer_key"]] -= row["letters"]
            tally.groups[row["group_key"]] -= row["letters"]
    await apply_tally(work.connection, tally, now_ms=work.now_ms)
    done = -tally.consumers.total()
    return Batch(
        scanned=rows[0]["scanned"],
        matched=rows[0]["matched"],
        done=done,
        after_enqueued_at_ms=rows[0]["position_ms"],
        after_id=str(rows[0]["position_id"]),
        delay_ms=_pause_ms(task, done),
    )


async def _window(connection: Connection, task: BulkAction) -> list[Row]:
    return await _asked(connection, task, WINDOWS[task.by_group], limit=_window_size(task))


async def _asked(connection: Connection, task: BulkAction, question: NamedQuery, *, limit: int) -> list[Row]:
    """Ask about the next letters of the task's lane."""
    return await fetch(
        connection,
        question,
        lane=task.lanes[task.lane],
        after_ms=task.after_enqueued_at_ms,
        after_id=task.after_id,
        high_water=task.high_water,
        retried_to=task.retried_to,
        task=task.id,
        exhausted_only=task.kind is BulkActionKind.PURGE and not task.filter.include_unexhausted,
        limit=limit,
        **task.filter.conditions(),
    )


def _window_size(task: BulkAction) -> int:
    if task.filter.expression is not None or task.patch is not None:
        return MAX_BATCH
    if task.dry_run:
        return COUNT_BATCH
    return DELETE_BATCH if task.kind is BulkActionKind.PURGE else MAX_BATCH


async def _meant(connection: Connection, task: BulkAction, window: Sequence[Row]) -> Meant:
    admitted = [row for row in window if row["admitted"]]
    if task.filter.expression is None or not admitted:
        return Meant(rows=admitted)
    return await _answered(connection, task.filter.expression, admitted)


async def _answered(connection: Connection, expression: str, rows: Sequence[Row]) -> Meant:
    """Ask the expression about whole letters; one that it cannot answer for is not meant, and is counted."""
    holds = predicate(compile_known(expression))
    whole = await fetch(connection, SQL["select_letters"], ids=[row["id"] for row in rows])
    letters = {row["id"]: letter_of(row) for row in whole}
    meant, unanswered, problem = [], 0, None
    for row in rows:
        try:
            if row["id"] in letters and holds(letters[row["id"]]):
                meant.append(row)
        except InvalidInput as error:
            unanswered, problem = unanswered + 1, error.message
    return Meant(rows=meant, unanswered=unanswered, problem=problem)


async def _try_out(work: Work, task: BulkAction, taken: Sequence[Row], batch: Batch) -> Batch:
    """Count what a redrive would skip: letters that the patch breaks or that no queue would take."""
    doubtful = [row for row in taken if task.patch is not None or row["envelope_bytes"] > LARGE_ENVELOPE]
    if task.kind is BulkActionKind.PURGE or not doubtful:
        return batch
    whole = await fetch(work.connection, SQL["select_letters"], ids=[row["id"] for row in doubtful])
    letters = [letter_of(row) for row in whole]
    patch = None if task.patch is None else await _patch(work, task.patch, letters[0].queue)
    skipped = unsendable(letters, task_id=task.id, patch=patch)
    return replace(
        batch,
        skipped=batch.skipped + len(skipped),
        problem=next(iter(skipped.values()), batch.problem),
    )


async def _redriven(
    work: Work, task: BulkAction, window: Sequence[Row], taken: Sequence[Row], batch: Batch
) -> Batch:
    letters = await lock_letters(work.connection, [row["id"] for row in taken])
    if not letters:
        return batch
    patch = None if task.patch is None else await _patch(work, task.patch, letters[0].queue)
    replays = await replay(
        work.connection, work.broker, letters, now_ms=work.now_ms, task_id=task.id, patch=patch
    )
    batch = replace(
        batch,
        done=len(replays.replayed),
        skipped=batch.skipped + len(replays.skipped),
        replayed=tuple(replays.replayed),
        delay_ms=_pause_ms(task, len(replays.replayed)),
        problem=next(iter(replays.skipped.values()), batch.problem),
    )
    return _stopped_short(task, window, letters, replays, batch) if replays.full else batch


def _stopped_short(
    task: BulkAction, window: Sequence[Row], letters: Sequence[DeadLetter], replays: Replays, batch: Batch
) -> Batch:
    """The queue was full: go back to the last letter that was dealt with, and wait a moment."""
    handled = []
    for letter in letters:
        if letter.id not in replays.replayed and letter.id not in replays.skipped:
            break
        handled.append(letter.id)
    skipped = len([letter_id for letter_id in handled if letter_id in replays.skipped])
    note = f"the queue `{letters[0].queue.queue}` is full; waiting for room"
    delayed = replace(batch, delay_ms=FULL_DELAY_MS, note=note, skipped=skipped)
    if not handled:
        return replace(
            delayed,
            scanned=0,
            matched=0,
            samples=(),
            after_enqueued_at_ms=task.after_enqueued_at_ms,
            after_id=task.after_id,
        )
    last = next(row for row in window if str(row["id"]) == handled[-1])
    reached = _reached(window, last, matched=len(handled), samples=())
    return replace(
        delayed,
        scanned=reached.scanned,
        matched=reached.matched,
        after_enqueued_at_ms=reached.after_enqueued_at_ms,
        after_id=reached.after_id,
    )


async def _patch(work: Work, text: str, queue: QueueRef) -> Patch:
    definition = await work.definitions.find(queue)
    return compile_patch(text, () if definition is None else definition.spec.message_type)


def _reached(window: Sequence[Row], last: Row, *, matched: int, samples: Sequence[Row]) -> Batch:
    return Batch(
        scanned=next(index for index, row in enumerate(window, start=1) if row is last),
        matched=matched,
        samples=tuple(str(row["id"]) for row in samples[:10]),
        after_enqueued_at_ms=last["position_ms"],
        after_id=str(last["position_id"]),
    )


def _room(task: BulkAction) -> int:
    """How many letters this batch may touch."""
    if task.dry_run:
        return COUNT_BATCH
    room = DELETE_BATCH if task.kind is BulkActionKind.PURGE else MAX_BATCH
    if task.rate_per_s is not None:
        room = min(room, max(1, int(task.rate_per_s * PACE_MS / 1000)))
    if task.canary_state is CanaryState.SENDING:
        room = min(room, task.canary - len(task.canary_ids))
    return room


def _pause_ms(task: BulkAction, done: int) -> int:
    return 0 if task.rate_per_s is None else round(done / task.rate_per_s * 1000)
